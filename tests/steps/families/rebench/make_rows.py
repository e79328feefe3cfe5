"""Rows of SWE-rebench in its two forms, with the columns that the real ones have."""

from __future__ import annotations

from typing import Any

COMMIT = "ad6bff35c39a0600fb8f2e176be4269e768e4e22"
PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
TEST_PATCH = (
    "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n"
    "@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    "diff --git a/tests/new.json b/tests/new.json\nnew file mode 100644\n--- /dev/null\n+++ b/tests/new.json\n"
    "@@ -0,0 +1 @@\n+{}\n"
)
X, Y = "tests/test_a.py::test_x", "tests/test_a.py::test_y"


def v2_row(**columns: Any) -> dict[str, Any]:
    """The form of nebius/SWE-rebench-V2."""
    row = {
        "instance_id": "acme__calc-7",
        "repo": "Acme/calc",
        "base_commit": COMMIT,
        "created_at": 1609298073000,
        "patch": PATCH,
        "test_patch": TEST_PATCH,
        "problem_statement": "1 is wrong",
        "pr_description": "makes it 2",
        "interface": "no new interfaces",
        "language": "python",
        "meta": {"llm_metadata": None},
        "FAIL_TO_PASS": [X],
        "PASS_TO_PASS": [Y],
        "image_name": "docker.io/swerebenchv2/acme-calc:7-ad6bff3",
        "install_config": {
            "base_image_name": "python:3.11",
            "docker_specs": None,
            "install": ["pip install -e ."],
            "log_parser": "parse_log_pytest",
            "test_cmd": "python -m pytest -rA tests",
        },
    }
    return row | columns


def v1_row(**columns: Any) -> dict[str, Any]:
    """The form of nebius/SWE-rebench and of its leaderboard."""
    row = {
        "instance_id": "acme__calc-7",
        "repo": "acme/calc",
        "base_commit": COMMIT,
        "version": "1.2",
        "environment_setup_commit": COMMIT,
        "created_at": "2024-02-19 20:29:03",
        "patch": PATCH,
        "test_patch": TEST_PATCH,
        "problem_statement": "1 is wrong",
        "hints_text": "see a.py",
        "FAIL_TO_PASS": [X],
        "PASS_TO_PASS": [Y],
        "FAIL_TO_FAIL": [],
        "PASS_TO_FAIL": [],
        "license_name": "MIT",
        "meta": {"is_lite": True},
        "requirements": "pytest==8.3.4",
        "environment": "name: calc",
        "docker_image": "swerebench/sweb.eval.x86_64.acme_1776_calc-7",
        "install_config": {
            "install": "echo installed",
            "log_parser": "parse_log_pytest",
            "packages": "requirements.txt",
            "pre_install": None,
            "python": "3.9",
            "test_cmd": "pytest --no-header -rA --tb=line --color=no -p no:cacheprovider",
        },
    }
    return row | columns


def with_config(row: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """The row with other keys of ``install_config``."""
    return row | {"install_config": row["install_config"] | keys}
