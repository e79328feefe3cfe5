"""Argo's CRD schemas, made strict: a field that they do not know is an error, as it is not to Argo's clients."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.paths import DATA

SCHEMAS = DATA / "argo"
FILES = {"Workflow": "workflows", "WorkflowTemplate": "workflowtemplates", "CronWorkflow": "cronworkflows"}
needs_schemas = pytest.mark.skipif(not SCHEMAS.is_dir(), reason="needs Argo's CRD schemas in ../shared/data/argo")


def mistakes(thing: dict[str, Any]) -> list[str]:
    """What the schema of its kind says against it, a line each."""
    errors = _validator(thing["kind"]).iter_errors(thing)
    return [f"{thing['kind']} {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors]


@cache
def _validator(kind: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{FILES[kind]}.schema.json").read_text("utf-8"))
    strict = _strict(schema)
    strict["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(strict)


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(item) for name, item in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        strict.pop("anyOf", None)
        strict["type"] = ["integer", "string"]
    free = schema.get("x-kubernetes-preserve-unknown-fields") is True or "additionalProperties" in schema
    # (a table of properties may itself have one that is called so)
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not free:
        strict["additionalProperties"] = False
    return strict
