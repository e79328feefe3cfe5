"""Names of tools, and what a mapping may hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.sandbox_spec import AGSSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.ags.image_copies import copy_name
from swe_argo.steps.sandbox.ags.tools import service_image, tool_name

IMAGE = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
EACH = AGSSpec(tool_per_image=True)


def test_tool_names_are_short_and_unique() -> None:
    images = [IMAGE, IMAGE.replace("swebench/", "other/"), IMAGE.replace("latest", "v2"), f"{IMAGE}@sha256:{'0' * 64}"]
    long = [f"a/{'x' * 200}:{tag}" for tag in ("one", "two")]
    names = [tool_name(EACH, image, mode) for image in (*images, *long) for mode in ("SANDBOX", "PUBLIC")]
    names += [tool_name(AGSSpec(tool_per_image=True, tool_prefix="p" * 24), IMAGE, "SANDBOX")]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,50}", name) for name in names)
    assert "django-11099" in names[0]


def test_shared_tools_differ_by_network() -> None:
    assert tool_name(AGSSpec(), IMAGE, "SANDBOX") == tool_name(AGSSpec(), "other:1", "SANDBOX") == "swe-argo-sandbox"
    assert tool_name(AGSSpec(), IMAGE, "PUBLIC") == "swe-argo-public"


def test_copy_names_are_unique() -> None:
    copies = {
        copy_name(image, "ccr.example/ns/") for image in ("a/repo:1", "b/repo:1", "a/repo", f"a/repo@sha256:{'0' * 64}")
    }
    assert len(copies) == 4
    assert all(re.fullmatch(r"ccr\.example/ns/repo:[\w.-]{1,128}", name) for name in copies)


def test_mapping_accepts_guide_format(tmp_path: Path) -> None:
    file = tmp_path / "tool_mapping.json"
    file.write_text('{"row:1": {"tool_name": "t", "tool_id": "sdt-1", "tcr_image": "ccr.example/a:1"}, "row:2": "x:2"}')
    spec = AGSSpec(mapping=str(file), registry_type="enterprise")
    assert service_image(spec, "row:1", None).name == "ccr.example/a:1"
    assert service_image(spec, "row:2", None).name == "x:2"
    assert service_image(spec, "row:3", "mirror.example/hub").name == "mirror.example/hub/row:3"
    assert service_image(spec, "row:3", None).registry_type == "enterprise"


@pytest.mark.parametrize("text", ["[]", "{", '{"image": 1}', '{"image": {"tcr_image": 1}}', '{"image": {}}'])
def test_invalid_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mapping.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"sandbox\.ags\.mapping"):
        service_image(AGSSpec(mapping=str(file)), IMAGE, None)
