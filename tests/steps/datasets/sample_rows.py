"""Rows made for tests, whole unless a test takes something away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

CLASSIC_LACKS = ("image", "eval_script", "log_parser", "eval_type")


PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
"""How properties are tried: however slow the machine is; tests write one file over and over."""


def row(instance_id: str = "acme__anvil-1", **changes: Any) -> dict[str, Any]:
    """A swebench 5 row as the hub has it: the lists of tests are JSON strings."""
    return {
        "repo": "acme/anvil",
        "instance_id": instance_id,
        "base_commit": "0" * 40,
        "patch": "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a\r\n+b\n",
        "test_patch": "diff --git a/test_a.py b/test_a.py\n",
        "problem_statement": "It breaks.",
        "hints_text": "Look at a.py",
        "created_at": "2026-01-02T03:04:05Z",
        "version": "1.0",
        "FAIL_TO_PASS": '["test_a.py::test_one"]',
        "PASS_TO_PASS": '["test_a.py::test_two", "test_a.py::test_three[a b]"]',
        "image": f"swebench/sweb.eval.x86_64.{instance_id.replace('__', '_1776_').lower()}:latest",
        "eval_script": "#!/bin/bash\nset -uxo pipefail\n",
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        **changes,
    }


def without(columns_by_name: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {column: value for column, value in columns_by_name.items() if column not in columns}


def classic(instance_id: str = "acme__anvil-1", **changes: Any) -> dict[str, Any]:
    return without(row(instance_id, **changes), *CLASSIC_LACKS)


def jsonl(path: Path, *values: Any) -> Path:
    path.write_bytes(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    return path


def task_repo(folder: Path, *rows: dict[str, Any], splits: tuple[str, ...] = ("test",)) -> Path:
    """A swebench 5 task repo of those rows, each in the split it names, by default ``test``."""
    import yaml

    as_files = {"patch": "gold.patch", "test_patch": "test.patch", "eval_script": "eval.sh"}
    as_files |= {"problem_statement": "problem_statement.md", "hints_text": "hints.md"}
    folder.mkdir(exist_ok=True)
    (folder / "sweb.yaml").write_text(yaml.safe_dump({"datasets": ["acme/Anvil"], "splits": list(splits)}))
    for source in rows:
        task = folder / "tasks" / source["instance_id"]
        task.mkdir(parents=True)
        for column, name in as_files.items():
            if source[column]:
                (task / name).write_bytes(source[column].encode())
        lists = {name: json.loads(source[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
        (task / "tests.json").write_text(json.dumps(lists))
        meta = {"split": "test", "datasets": ["acme/Anvil"], **without(source, *as_files, *lists)}
        (task / "task.yaml").write_text(yaml.safe_dump(meta))
    return folder
