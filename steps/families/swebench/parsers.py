"""swebench's log parsers, and evaluation types of repositories."""

from __future__ import annotations

from functools import cache

from swe_argo.steps.grading import swebench_harness

VERSION = "5.0.2"
_LANGUAGES = {
    "python": "PY",
    "javascript": "JS",
    "c": "C",
    "go": "GO",
    "java": "JAVA",
    "php": "PHP",
    "ruby": "RUBY",
    "rust": "RUST",
}


@cache
def parser_names() -> frozenset[str]:
    """Return the valid values of ``log_parser``, the keys of swebench's PARSER_REGISTRY."""
    return frozenset(swebench_harness.import_harness("log_parsers").PARSER_REGISTRY)


@cache
def eval_types() -> frozenset[str]:
    """Return the valid values of ``eval_type``."""
    return frozenset(kind.value for kind in swebench_harness.import_harness("constants").EvalType)


def of_repo(repo: str) -> str | None:
    """Return the ``log_parser`` of a repository's classic rows, or None if swebench has none."""
    return _by_repo().get(repo)


def eval_type_of_repo(repo: str) -> str:
    """Return the ``eval_type`` of a repository's classic rows (swebench's FAIL_ONLY_REPOS)."""
    constants = swebench_harness.import_harness("constants")
    return str(
        (constants.EvalType.FAIL_ONLY if repo in constants.FAIL_ONLY_REPOS else constants.EvalType.PASS_AND_FAIL).value
    )


@cache
def _by_repo() -> dict[str, str]:
    """Return the ``log_parser`` of each repository that swebench has one for."""
    # Several names may have the same function (parse_log_sqlfluff is parse_log_pytest).
    name_of = {
        function: name
        for name, function in reversed(swebench_harness.import_harness("log_parsers").PARSER_REGISTRY.items())
    }
    by_repo: dict[str, str] = {}
    for language, suffix in _LANGUAGES.items():
        module = swebench_harness.import_harness(f"log_parsers.{language}")
        parsers = getattr(module, f"MAP_REPO_TO_PARSER_{suffix}")
        by_repo |= {repo: name_of[parser] for repo, parser in parsers.items() if parser in name_of}
    return by_repo
