"""The table of task.toml's keys in the docs, compared with our model and with Harbor's own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from swe_argo.steps.families.harbor.task_file import TaskFile

DOCS = Path(__file__).parents[4] / "docs" / "harbor.md"
TABLES = ("task", "environment", "agent", "verifier", "solution")
HARBOR = os.environ.get("SWE_ARGO_TEST_HARBOR", "")
"""A Python with Harbor 0.26 (it needs Python 3.12)."""
LIST_FIELDS = f"""
from harbor.models.task.config import TaskConfig
from typing import get_args
for name, field in TaskConfig.model_fields.items():
    models = [each for each in (field.annotation, *get_args(field.annotation)) if hasattr(each, "model_fields")]
    print(*([f"{{name}}.{{key}}" for key in models[0].model_fields] if name in {TABLES!r} else [name]))
"""


def documented_keys() -> set[str]:
    section = DOCS.read_text().partition("## Keys of task.toml")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`([a-z_.]+)`", row)}


def test_every_key_that_is_read_is_documented() -> None:
    keys = set()
    for name, field in TaskFile.model_fields.items():
        models = [model for model in (field.annotation, *get_args(field.annotation)) if isinstance(model, type)]
        tables = [model for model in models if name in TABLES and issubclass(model, BaseModel)]
        keys |= {f"{name}.{key}" for key in tables[0].model_fields} if tables else {name}
    assert keys - documented_keys() == set()


@pytest.mark.skipif(not HARBOR, reason="SWE_ARGO_TEST_HARBOR names no Python with Harbor 0.26")
def test_documented_keys_are_harbors() -> None:
    listed = subprocess.run((HARBOR, "-c", LIST_FIELDS), capture_output=True, text=True, check=True).stdout
    assert set(listed.split()) == documented_keys()
