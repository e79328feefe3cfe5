"""Columns of a SWE-rebench row.

There are two forms. V2 (nebius/SWE-rebench-V2): any language, the repository at ``/<its name>``. V1
(nebius/SWE-rebench, -leaderboard): Python, in images like SWE-bench's. In both, ``install_config`` has the test
commands and the parser of their output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.families.columns import (
    IMAGE,
    RowColumns,
    SourceRow,
    bad_column,
    check_unicode,
    read_id,
    read_json,
    read_text,
)
from swe_argo.steps.families.listed_tests import LISTS

CONFIG: Final = "install_config"
COLUMNS: Final = RowColumns(
    ("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement", *LISTS, CONFIG)
)
_IMAGES = ("image_name", "docker_image", "image_url")
_OF_V2 = ("base_image_name", "docker_specs")
"""Keys of ``install_config`` that V1 does not have."""
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/(?!\.{1,2}$)[\w.-]+", re.ASCII)
_SYSTEM = frozenset({"bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr", "var"})
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LOCALE_PREFIX = "LANG=C.UTF-8 LC_ALL=C.UTF-8 "
"""The words that V1's fork of SWE-bench puts before a row's commands."""


def instance_id(row: SourceRow) -> str:
    """Return ``<owner>__<repo>-<number>``. Raises ConfigError, like every function here."""
    return read_id(row)


def repo(row: SourceRow) -> str:
    """Return ``<owner>/<repo>``."""
    value = read_text(row, "repo", instance_id(row))
    if not _REPO.fullmatch(value):
        raise bad_column(instance_id(row), "repo", f"{value!r} is not <owner>/<repo>")
    return value


def version(row: SourceRow) -> str:
    """Return V1's version, which is not used, or ""."""
    return "" if row.get("version") is None else read_text(row, "version", instance_id(row))


def base_commit(row: SourceRow) -> str:
    """Return the commit that an agent starts from."""
    commit = read_text(row, "base_commit", instance_id(row))
    if not _COMMIT.fullmatch(commit):
        raise bad_column(instance_id(row), "base_commit", f"{commit!r} is not a commit hash")
    return commit


def is_v2(row: SourceRow) -> bool:
    """Return whether the row has V2's form."""
    return any(key in config(row) for key in _OF_V2)


def workdir(row: SourceRow) -> str:
    """Return the path of the repository in the image."""
    if not is_v2(row):
        return WORKDIR
    name = repo(row).partition("/")[2]
    if name in _SYSTEM:
        raise bad_column(instance_id(row), "repo", f"has the name {name}, but an image cannot have it at /{name}")
    return f"/{name}"


def image(row: SourceRow) -> str:
    """Return the row's image; for a V1 row without an image, follow the naming rule of V1's images."""
    name = next((str(row[column]) for column in _IMAGES if row.get(column)), "").strip()
    if name:
        if not IMAGE.fullmatch(name):
            raise bad_column(instance_id(row), "image", f"{name[:80]!r} is not an image name")
        return name
    if is_v2(row):
        raise bad_column(instance_id(row), " and ".join(_IMAGES[:2]), "are empty: no image")
    return f"swerebench/sweb.eval.x86_64.{instance_id(row).replace('__', '_1776_')}:latest".lower()


def config(row: SourceRow) -> Mapping[str, Any]:
    """Return ``install_config``."""
    value = read_json(row, CONFIG, instance_id(row))
    if not isinstance(value, Mapping):
        raise bad_column(instance_id(row), CONFIG, f"is {type(value).__name__}, not an object")
    return value


def parser_name(row: SourceRow) -> str:
    """Return the name of the log parser."""
    name = config(row).get("log_parser")
    if not isinstance(name, str) or not name:
        raise bad_column(instance_id(row), f"{CONFIG}.log_parser", "is missing")
    return name


def test_commands(row: SourceRow) -> list[str]:
    """Return the commands that run the tests, in order; of V1's, only the last one runs."""
    commands = _commands(row, "test_cmd")
    if not commands:
        raise bad_column(instance_id(row), f"{CONFIG}.test_cmd", "is empty")
    return commands if is_v2(row) else [_LOCALE_PREFIX + commands[-1]]


def install_command(row: SourceRow) -> str:
    """Return V1's command that reinstalls the repository before the tests; may be empty."""
    commands = [] if is_v2(row) else _commands(row, "install")
    return _LOCALE_PREFIX + "; ".join(commands) if commands else ""


def _commands(row: SourceRow, key: str) -> list[str]:
    """Return the commands at a key of ``install_config``: a text, a list, or a JSON list; none if it is missing."""
    value = config(row).get(key)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]  # a command that begins with a test: [ -f x ] && ...
    values = [value] if isinstance(value, str) else value or []
    if not isinstance(values, list) or not all(isinstance(command, str) for command in values):
        raise bad_column(instance_id(row), f"{CONFIG}.{key}", "is neither a command nor a list of commands")
    check_unicode("\n".join(values), f"{CONFIG}.{key}", instance_id(row))
    return [command for command in values if command.strip()]
