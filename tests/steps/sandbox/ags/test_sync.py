"""Tools of AGS: their names, the mapping of images, and ``swe-argo ags sync``, which makes both."""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.sandbox_spec import AGSSpec, SandboxSpec
from swe_argo.steps.datasets.mini import HARBOR_TASKS
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.ags.backend import AGSBackend
from swe_argo.steps.sandbox.ags.sync import SyncPlan, copy_name, missing_tools, sync
from swe_argo.steps.sandbox.ags.tools import service_image, tool_name
from swe_argo.steps.sandbox.protocol import SandboxNeeds
from tests.registry import Registry
from tests.registry import serve as serve_registry
from tests.steps.sandbox.ags.lab import forget_settings
from tests.steps.sandbox.ags.server import AGSServer
from tests.steps.sandbox.envd.lab import at_server
from tests.workflows.command import call

IMAGES = ["org/one:1", "org/two:1"]
needs_skopeo = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[AGSServer]:
    """An account without tools or images."""
    server = AGSServer(tmp_path / "images", {})
    with at_server(server, tmp_path / "home", [forget_settings]):
        yield server


def make_sync_plan(folder: Path, table: dict[str, Any] | None = None, **options: Any) -> SyncPlan:
    defaults: dict[str, Any] = {"images": IMAGES, "modes": ["SANDBOX", "PUBLIC"], "envd_image": "ccr.example/envd:1"}
    return SyncPlan(table=AGSSpec(**(table or {})), mapping=folder / "images.json", **{**defaults, **options})


def quiet(_line: str) -> None:
    """Print nothing."""


def assert_ready(**table: Any) -> None:
    needs = SandboxNeeds(IMAGES, acts=True, solves=True, grading_network=True, timeout_s=60)
    AGSBackend.ready(SandboxSpec.model_validate({"backend": "ags", "ags": table}), needs)


class TestTools:
    def test_sync_makes_shared_tools_once(self, account: AGSServer, tmp_path: Path) -> None:
        account.control.tools.looks_until_active = 2
        lines: list[str] = []
        plan = make_sync_plan(tmp_path, role_arn="qcs::cam::role")
        assert sync(plan, lines.append).created == ["swe-argo-sandbox", "swe-argo-public"]
        assert "waiting for tools: 2 are not ACTIVE yet" in lines
        body = account.control.tools.creates[0]
        assert body["CustomConfiguration"]["SecurityContext"] == {"Privileged": False}
        assert body["NetworkConfiguration"] == {"NetworkMode": "SANDBOX"}
        assert body["RoleArn"] == "qcs::cam::role"
        assert body["StorageMounts"][0]["StorageSource"]["Image"]["Reference"] == "ccr.example/envd:1"
        again = sync(plan, quiet)
        assert (again.created, again.existing_tools) == ([], ["swe-argo-sandbox", "swe-argo-public"])
        assert len(account.control.tools.creates) == 2
        assert_ready(mapping=str(plan.mapping))

    def test_sync_makes_a_tool_per_image(self, account: AGSServer, tmp_path: Path) -> None:
        table = {"tool_per_image": True}
        result = sync(make_sync_plan(tmp_path, table), quiet)
        assert len(set(result.created)) == 4
        tags = {tag["Key"]: tag["Value"] for tag in account.control.tools.creates[0]["Tags"]}
        assert (tags["image"], tags["tcr_image"]) == (IMAGES[0], IMAGES[0])
        mapping = json.loads((tmp_path / "images.json").read_text())
        assert set(mapping[IMAGES[1]]["tools"]) == {"SANDBOX", "PUBLIC"}
        assert mapping[IMAGES[1]]["tools"]["PUBLIC"]["tool_name"] in result.created
        assert_ready(**table)

    def test_sync_resumes_after_interrupt(self, account: AGSServer, tmp_path: Path) -> None:
        plan = make_sync_plan(tmp_path, {"tool_per_image": True})

        def interrupt(line: str) -> None:
            if line.startswith("creating tools: 2"):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sync(plan, interrupt)
        assert len(account.control.tools.all) == 2
        assert len(missing_tools(plan)) == 2
        assert len(sync(plan, quiet).created) == 2
        assert len(account.control.tools.all) == 4

    def test_sync_remakes_removed_tools(self, account: AGSServer, tmp_path: Path) -> None:
        account.control.faults.codes["CreateSandboxTool"] = deque(["InternalError", "RequestLimitExceeded"])
        for _ in range(2):
            assert len(sync(make_sync_plan(tmp_path), quiet).created) == 2
            assert len(account.control.tools.all) == 2
            account.control.tools.all.clear()

    def test_sync_names_a_failed_tool(self, account: AGSServer, tmp_path: Path) -> None:
        account.control.tools.failing.add("swe-argo-public")
        result = sync(make_sync_plan(tmp_path), quiet)
        assert "is FAILED, not ACTIVE" in result.failed["swe-argo-public"]
        assert "swe-argo-sandbox" in result.created

    def test_sync_names_a_missing_role(self, account: AGSServer, tmp_path: Path) -> None:
        account.control.faults.codes["CreateSandboxTool"] = deque(["MissingParameter.RoleArn"] * 2)
        result = sync(make_sync_plan(tmp_path), quiet)
        assert all("TENCENTCLOUD_ROLE_ARN" in why for why in result.failed.values())
        assert len(result.failed) == 2

    def test_sync_needs_an_envd_image(self, account: AGSServer, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="AGS_ENVD_IMAGE"):
            sync(make_sync_plan(tmp_path, envd_image=None), quiet)
        assert account.control.tools.creates == []


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with the images, to which skopeo connects without TLS."""
    with serve_registry() as registry:
        file = tmp_path / ".config" / "containers" / "registries.conf"
        file.parent.mkdir(parents=True)
        file.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
        monkeypatch.setenv("HOME", str(tmp_path))
        for image in IMAGES:
            registry.add(image.partition(":")[0], b"\0" * 1024, "1")
        yield registry


@needs_skopeo
class TestCopies:
    def test_sync_copies_images_once(self, account: AGSServer, registry: Registry, tmp_path: Path) -> None:
        plan = make_sync_plan(
            tmp_path, registry=registry.address, copy_to=f"{registry.address}/mine", copies_at_a_time=1
        )
        result = sync(plan, quiet)
        assert (sorted(result.copied), result.failed) == (IMAGES, {})
        mapping = json.loads(plan.mapping.read_text())
        name = mapping[IMAGES[0]]["tcr_image"]
        registry.config(name.partition("/")[2])
        again = sync(plan, quiet)
        assert (again.copied, sorted(again.existing_images)) == ([], IMAGES)

    def test_sync_names_a_missing_image(self, account: AGSServer, registry: Registry, tmp_path: Path) -> None:
        plan = make_sync_plan(
            tmp_path, images=["org/none:1", IMAGES[0]], registry=registry.address, copy_to=f"{registry.address}/mine"
        )
        result = sync(plan, quiet)
        assert (result.copied, list(result.failed)) == ([IMAGES[0]], ["org/none:1"])
        assert "manifest unknown" in result.failed["org/none:1"]
        assert list(json.loads(plan.mapping.read_text())) == [IMAGES[0]]
        assert result.created == ["swe-argo-sandbox", "swe-argo-public"], "the first image is no reason to make none"


def test_copy_needs_skopeo(account: AGSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs skopeo, which is not installed"):
        sync(make_sync_plan(tmp_path, copy_to="ccr.example/ns"), quiet)


def test_sync_command_has_a_dry_run(account: AGSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["ags", "sync", "mini", "--k", "2", "--ags-tool-per-image", "--envd-image", "ccr.example/envd:1"]
    dry = call(*words, "--dry-run")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert "2 images, 4 tools missing; nothing was changed" in dry.stdout
    assert account.control.tools.creates == []
    result = call(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 tools created, 0 existed; 0 failed" in result.stdout
    assert len(json.loads((tmp_path / "ags-images.json").read_text())) == 2


def test_sync_makes_tools_of_closed_tasks(account: AGSServer, tmp_path: Path) -> None:
    words = ("--solve-network", "--envd-image", "ccr.example/envd:1", "--dry-run")
    for dataset, number in (("mini", 1), (str(HARBOR_TASKS / "greeting"), 2)):
        dry = call("ags", "sync", dataset, *words)
        assert f"{number} tools missing; nothing was changed" in dry.stdout, dry.stdout + dry.stderr


# -- names and mappings

DJANGO = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"
EACH = AGSSpec(tool_per_image=True)


def test_tool_names_are_short_and_unique() -> None:
    images = [
        DJANGO,
        DJANGO.replace("swebench/", "other/"),
        DJANGO.replace("latest", "v2"),
        f"{DJANGO}@sha256:{'0' * 64}",
    ]
    long = [f"a/{'x' * 200}:{tag}" for tag in ("one", "two")]
    names = [tool_name(EACH, image, mode) for image in (*images, *long) for mode in ("SANDBOX", "PUBLIC")]
    names += [tool_name(AGSSpec(tool_per_image=True, tool_prefix="p" * 24), DJANGO, "SANDBOX")]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,50}", name) for name in names)
    assert "django-11099" in names[0]


def test_shared_tools_differ_by_network() -> None:
    assert tool_name(AGSSpec(), DJANGO, "SANDBOX") == tool_name(AGSSpec(), "other:1", "SANDBOX") == "swe-argo-sandbox"
    assert tool_name(AGSSpec(), DJANGO, "PUBLIC") == "swe-argo-public"


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
        service_image(AGSSpec(mapping=str(file)), DJANGO, None)
