"""SWE-bench: patches, graded by the swebench library as in the swebench harness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Final

from swe_argo.steps.contracts.data import Answer, Instance
from swe_argo.steps.families.columns import (
    LISTS,
    RowColumns,
    SourceRow,
    bad_row,
    check_unicode,
    describe_kind,
    read_id,
    read_json,
    read_names,
    read_text,
)
from swe_argo.steps.families.family import HandsOn, Row
from swe_argo.steps.grading import official
from swe_argo.steps.grading.official_patch import official_files
from swe_argo.steps.grading.procedure import ProcedureRun, run_tests
from swe_argo.steps.grading.saved_logs import grade_text
from swe_argo.steps.grading.twins.listed_tests import ListedTwinTests, PatchedFiles
from swe_argo.steps.grading.verdict import Verdict, judge
from swe_argo.steps.sandbox.protocol import Sandbox


class SweBenchAnswer(Answer):
    """A SWE-bench instance's answer."""

    repo: str
    version: str
    image: str
    patch: str
    test_patch: str
    eval_script: str
    FAIL_TO_PASS: list[str]
    PASS_TO_PASS: list[str]
    log_parser: str
    eval_type: str
    image_assets: dict[str, Any] = {}

    def row(self) -> dict[str, Any]:
        """Return the row for ``swebench.harness.utils.make_test_spec``."""
        return self.model_dump(exclude={"family", "row_sha256"})


VERSION = "5.0.2"
NEW_COLUMNS: Final = ("image", "eval_script", "log_parser", "eval_type")
"""The columns that swebench 5 added; a row without them is classic."""
_REQUIRED: Final = ("repo", "base_commit", "patch", "test_patch", "problem_statement", "version")
_OPTIONAL: Final = ("hints_text", "created_at", *NEW_COLUMNS)
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


def eval_type_of_repo(repo: str) -> str:
    """Return the ``eval_type`` of a repository's classic rows (swebench's FAIL_ONLY_REPOS)."""
    constants = official.harness_constants()
    kind = constants.EvalType.FAIL_ONLY if repo in constants.FAIL_ONLY_REPOS else constants.EvalType.PASS_AND_FAIL
    return str(kind.value)


@cache
def parsers_by_repo() -> dict[str, str]:
    """Return the ``log_parser`` of each repository that swebench has one for."""
    # Several names may have the same function (parse_log_sqlfluff is parse_log_pytest).
    name_of = {
        function: name for name, function in reversed(official.import_harness("log_parsers").PARSER_REGISTRY.items())
    }
    by_repo: dict[str, str] = {}
    for language, suffix in _LANGUAGES.items():
        module = official.import_harness(f"log_parsers.{language}")
        parsers = getattr(module, f"MAP_REPO_TO_PARSER_{suffix}")
        by_repo |= {repo: name_of[parser] for repo, parser in parsers.items() if parser in name_of}
    return by_repo


def missing_columns(row: Row) -> list[str]:
    """Return the columns of swebench 5 that a row lacks."""
    return [column for column in NEW_COLUMNS if not row[column].strip()]


def _read_assets(row: Row, where: str) -> dict[str, Any]:
    """Return ``image_assets``: part of the row -> files. Raises ConfigError if it has another form."""
    value = read_json(row, "image_assets", where, "a JSON object") if row.get("image_assets") else {}
    if not value:
        return {}
    if not isinstance(value, dict):
        raise bad_row(where, f"image_assets is {describe_kind(value)}, not an object")
    for part, files in value.items():
        if not isinstance(files, list | None):
            raise bad_row(where, f"image_assets.{ascii(part)[1:-1]} is {describe_kind(files)}, not a list")
    return value


def make_twin_tests(answer: SweBenchAnswer, base_commit: str) -> ListedTwinTests:
    """Return the twin tests of an instance; ``base_commit`` is the repository without the test patch."""
    spec = official.make_test_spec(answer.row())

    def run_script(box: Sandbox, lines: list[str], patch: bytes | None, timeout_s: int, folder: str) -> ProcedureRun:
        # The first run had enough memory and disk, so a patch that runs out of them now does so on purpose.
        changed = replace(spec, eval_script_list=lines)
        return run_tests(box, changed, patch, timeout_s=timeout_s, folder=folder, enlarged=True)

    def read_log(log: bytes) -> tuple[Mapping[str, str], str]:
        prediction = {"instance_id": answer.instance_id, "model_patch": "x"}
        graded = grade_text(spec, log.decode(errors="replace"), prediction)
        reason = graded.inner.get("infra_failure_reason") or "the markers or all results are missing"
        return graded.reading.statuses, reason

    def read_id(node_id: str) -> str:
        statuses = official.call_quietly(official.official_parser(spec), f"PASSED {node_id}", spec)
        return next(iter(statuses), node_id)

    return ListedTwinTests(
        instance_id=answer.instance_id,
        row_sha256=answer.row_sha256,
        reference=answer.patch.encode("utf-8", "surrogateescape"),
        fail_to_pass=answer.FAIL_TO_PASS,
        pass_to_pass=answer.PASS_TO_PASS,
        files=PatchedFiles(spec.eval_script_list, base_commit),
        set_up=lambda _box: None,
        run_script=run_script,
        read_log=read_log,
        read_id=read_id,
    )


class SweBenchGrader:
    """See ``Grader``."""

    def __init__(self, instance: Instance, answer: SweBenchAnswer) -> None:
        self.browsers = bool(answer.image_assets)
        self.twin_tests = make_twin_tests(answer, instance.base_commit)
        self._spec = official.make_test_spec(answer.row())

    def run(
        self, box: Sandbox, patch: bytes | None, *, timeout_s: int, folder: str, machine_name: str, enlarged: bool
    ) -> ProcedureRun:
        """Run the harness's procedure."""
        return run_tests(
            box,
            self._spec,
            patch,
            timeout_s=timeout_s,
            folder=folder,
            machine_name=machine_name,
            enlarged=enlarged,
            test_files=official_files(self._spec.eval_script_list),
        )

    def judge(self, run: ProcedureRun, patch: bytes) -> Verdict:
        """Return the official verdict, and its integrity."""
        return judge(run, self._spec, patch)


class SweBench:
    """See ``Family``."""

    columns = RowColumns(("instance_id", *_REQUIRED, *LISTS))
    hands_on: ClassVar[HandsOn] = "patch"

    def recognizes(self, row: SourceRow) -> bool:
        """Return whether a row is SWE-bench's, including classic rows; ``normalise`` reports missing columns."""
        return "test_patch" in row

    def normalise(self, row: Row, where: str) -> Row:
        """See ``Family.normalise``. Converts the test lists to list[str], image_assets to a dict, and texts to str."""
        row = dict(row)
        row["instance_id"] = read_id(row, where)
        for column in _REQUIRED:
            row[column] = read_text(row, column, where)
        for column in _OPTIONAL:
            row[column] = "" if row.get(column) is None else read_text(row, column, where)
        for column in LISTS:
            row[column] = read_names(row, column, where)
        if isinstance(row.get("difficulty"), str):
            check_unicode(row["difficulty"], "difficulty", where)
        row["image_assets"] = _read_assets(row, where)
        return row

    def to_answer(self, row: Row) -> SweBenchAnswer:
        """Return the columns for grading."""
        return SweBenchAnswer(**{name: row[name] for name in SweBenchAnswer.model_fields if name in row})

    def why_not_gradeable(self, row: Row) -> str | None:
        """See ``Family.why_not_gradeable``."""
        if missing := missing_columns(row):
            return f"lacks {', '.join(missing)}"
        if row["log_parser"] not in official.import_harness("log_parsers").PARSER_REGISTRY:
            return f"log_parser {row['log_parser']!r} is not a parser of swebench {VERSION}"
        eval_types = sorted(kind.value for kind in official.harness_constants().EvalType)
        if row["eval_type"] not in eval_types:
            return f"eval_type {row['eval_type']!r} is not one of {', '.join(eval_types)}"
        if not row["FAIL_TO_PASS"] and not row["PASS_TO_PASS"]:
            return "lists no tests, so any log would count as resolved"
        assets = [asset for part in ("test_patch", "patch") for asset in row["image_assets"].get(part) or ()]
        urls = [str(asset.get("url") or "") for asset in assets]
        if without_url := sum(not url.startswith(("http://", "https://")) for url in urls):
            return f"{without_url} of {len(assets)} binary files of its tests have no url (image_assets)"
        return None

    def prepare(self, box: Sandbox, instance: Instance) -> None:
        """Do nothing: the images need no preparation, apart from the history."""

    def make_grader(self, instance: Instance, answer: Answer) -> SweBenchGrader:
        """Return the official grader."""
        return SweBenchGrader(instance, SweBenchAnswer.model_validate(answer.model_dump()))


FAMILY = SweBench()
