"""Sandboxes of backend ags are made, or refused with a reason."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import AGSSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.ags.orphans import ags_sandboxes
from swe_argo.steps.sandbox.ags.start import start_refusals
from swe_argo.steps.sandbox.ags.tools import ServiceImage, configuration, tool_name
from swe_argo.steps.sandbox.diagnosis import diagnose
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.steps.sandbox.ags.lab import AGSLab, forget_settings
from tests.steps.sandbox.conformance import run, says
from tests.steps.sandbox.envd.lab import IMAGE, LABELS

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


class TestMaking:
    def test_lost_answer_makes_one_sandbox(self, lab: AGSLab) -> None:
        before = {machine.number for machine in lab.server.machines.list_all()}
        lab.server.faults.lost_start_answers = 1
        box = lab.make()
        new_ids = {machine.number for machine in lab.server.machines.list_all()} - before
        assert new_ids == {box.transport.sandbox_id}

    def test_transient_error_is_retried(self, lab: AGSLab) -> None:
        lab.server.faults.codes["StartSandboxInstance"] = deque(["RequestLimitExceeded", "InternalError.Unknown"])
        lab.server.faults.statuses.extend([502, 429])
        assert says(lab.make(), "cat hello.txt") == "hello\n"

    def test_sandbox_is_labelled_and_closed(self, lab: AGSLab) -> None:
        box = lab.make(name="sb-test-whose", cpus=2, memory_mb=4096)
        body = lab.server.control.starts[-1]
        metadata = {entry["Name"]: entry["Value"] for entry in body["Metadata"]}
        assert {key: metadata[key] for key in LABELS} == LABELS
        assert (body["Timeout"], body["ToolName"], metadata["name"]) == ("900s", "swe-argo-sandbox", "sb-test-whose")
        configuration = body["CustomConfiguration"]
        assert (configuration["Image"], configuration["SecurityContext"]) == (IMAGE, {"Privileged": False})
        assert configuration["Resources"] == {"CPU": "2", "Memory": "4096Mi"}
        instance = lab.server.control.instance_of(box.transport.sandbox_id)
        assert (instance.privileged, instance.machine.network) == (False, False)

    def test_create_waits_until_running(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.faults, "looks_until_running", 2)
        assert says(lab.make(), "cat hello.txt") == "hello\n"

    def test_failed_start_is_removed(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.faults, "looks_until_running", 1)
        before = len(lab.server.machines.list_all())
        lab.server.faults.failing_starts = 1
        with pytest.raises(InfraError, match="is FAILED, not running") as caught:
            lab.make()
        assert caught.value.failure_class is FailureClass.SANDBOX_CREATE
        assert len(lab.server.machines.list_all()) == before

    def test_create_waits_for_quota(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        first = lab.make()
        monkeypatch.setattr(lab.server.control, "quota", len(lab.server.machines.list_all()))
        notes: list[str] = []

        def look_and_give_way() -> None:
            while (refusal := start_refusals().latest()) is None:
                time.sleep(0.05)
            notes.append(refusal.why)
            lab.destroy(first)

        assert start_refusals().latest() is None
        giving = threading.Thread(target=look_and_give_way, daemon=True)
        giving.start()
        assert says(lab.make(), "cat hello.txt") == "hello\n"
        giving.join()
        assert lab.server.control.refused_for_quota == 0
        [note] = notes
        assert re.fullmatch(r"(\d+) of the account's \1 sandboxes are in use", note)
        assert start_refusals().latest() is None

    def test_create_retries_on_full_quota(self, lab: AGSLab) -> None:
        lab.server.faults.codes["DescribeQuotaOverview"] = deque(["UnauthorizedOperation"] * 3)
        lab.server.faults.codes["StartSandboxInstance"] = deque(["LimitExceeded.SandboxInstance"] * 2)
        before = len(lab.server.control.start_tokens)
        assert says(lab.make(), "cat hello.txt") == "hello\n"
        assert len(set(lab.server.control.start_tokens[before:])) == 3, "what follows a refusal has a token of its own"

    def test_missing_image_names_command(self, lab: AGSLab) -> None:
        with pytest.raises(ConfigError, match=r"image other/image:2.*swe-argo ags sync") as caught:
            lab.make(image="other/image:2")
        assert caught.value.failure_class is FailureClass.IMAGE_MISSING

    def test_missing_tool_names_sync_command(self, lab: AGSLab) -> None:
        backend = lab.connect(tool_prefix="none")
        with pytest.raises(
            ConfigError, match=r"ap-shanghai has no tool none-sandbox .*image test/image:1: create it with swe-argo ags"
        ):
            backend.create(SandboxRequest("sb-test-tool", IMAGE, 60, network=False))

    def test_tool_is_found_by_its_tags(self, lab: AGSLab) -> None:
        where = ServiceImage(IMAGE, "personal")
        lab.server.control.tools.CreateSandboxTool(
            {
                "ToolName": "made-by-the-guides-script",
                "ToolType": "custom",
                "NetworkConfiguration": {"NetworkMode": "SANDBOX"},
                "CustomConfiguration": configuration(where),
                "Tags": [{"Key": "image", "Value": "row/image:1"}, {"Key": "tcr_image", "Value": IMAGE}],
            }
        )
        backend = lab.connect(tool_per_image=True)
        box = backend.create(SandboxRequest("sb-test-tags", IMAGE, 60, network=False))
        assert says(box, "cat hello.txt") == "hello\n"
        backend.destroy(box)
        assert lab.server.control.starts[-1]["ToolName"] == "made-by-the-guides-script"
        assert "CustomConfiguration" not in lab.server.control.starts[-1]

    def test_privileged_tool_is_refused(self, lab: AGSLab) -> None:
        lab.server.control.tools.CreateSandboxTool(
            {
                "ToolName": tool_name(AGSSpec(tool_per_image=True, tool_prefix="bad"), IMAGE, "SANDBOX"),
                "ToolType": "custom",
                "NetworkConfiguration": {"NetworkMode": "SANDBOX"},
                "CustomConfiguration": {"Image": IMAGE, "ImageRegistryType": "personal"},
            }
        )
        before = len(lab.server.machines.list_all())
        with pytest.raises(ConfigError, match="privileged"):
            lab.connect(tool_per_image=True, tool_prefix="bad").create(
                SandboxRequest("sb-test-bad", IMAGE, 60, network=False)
            )
        assert len(lab.server.machines.list_all()) == before

    def test_mapping_locates_the_image(self, lab: AGSLab, tmp_path: Path) -> None:
        file = tmp_path / "images.json"
        file.write_text(json.dumps({"other/image:2": {"tcr_image": IMAGE, "image_registry_type": "enterprise"}}))
        backend = lab.connect(mapping=str(file))
        box = backend.create(SandboxRequest("sb-test-mapped", "other/image:2", 60, network=False))
        assert says(box, "cat hello.txt") == "hello\n"
        backend.destroy(box)
        assert lab.server.control.starts[-1]["CustomConfiguration"]["ImageRegistryType"] == "enterprise"

    def test_lifetime_is_capped_by_account(self, lab: AGSLab) -> None:
        lab.make(deadline_s=7200)
        assert lab.server.control.starts[-1]["Timeout"] == "3600s"

    @pytest.mark.parametrize("name", ["TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY"])
    def test_refused_key_names_the_region(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv(name, "wrong")
        forget_settings()
        try:
            with pytest.raises(ConfigError, match=r"region ap-shanghai refused.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"):
                lab.connect().create(SandboxRequest("sb-test-key", IMAGE, 60, network=False))
            diagnosis = diagnose("ags", SandboxSpec())
            assert diagnosis.well is False
            assert "TENCENTCLOUD_SECRET_KEY" in diagnosis.detail
        finally:
            monkeypatch.undo()
            forget_settings()

    @pytest.mark.parametrize("status", [401, 403])
    def test_gateway_refusal_is_not_retried(self, lab: AGSLab, status: int) -> None:
        start_count = len(lab.server.control.starts)
        lab.server.faults.statuses.extend([status] * 2)  # to the question for the quota, and to the start
        refused = rf"region ap-shanghai refused.*HTTP {status}: .*not now.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"
        with pytest.raises(ConfigError, match=refused):
            lab.make()
        assert not lab.server.faults.statuses
        assert len(lab.server.control.starts) == start_count

    @pytest.mark.parametrize("status", [404, 407])
    def test_foreign_status_names_address(self, lab: AGSLab, status: int) -> None:
        lab.server.faults.statuses.append(status)
        with pytest.raises(ConfigError, match=rf"HTTP {status}: .*AGS_ENDPOINT and the proxy"):
            ags_sandboxes().find_orphans()
        assert ags_sandboxes().find_orphans() == {}

    def test_snapshot_starts_a_sandbox(self, lab: AGSLab) -> None:
        box = lab.make()
        run(box, "echo kept >kept.txt")
        snapshot = lab.backend.snapshot(box, "sweargo-group-1")
        assert lab.backend.snapshot(box, "sweargo-group-1") == snapshot
        other = lab.make(snapshot=snapshot)
        assert says(other, "cat kept.txt") == "kept\n"
        assert not lab.server.control.instance_of(other.transport.sandbox_id).privileged
        for name in (snapshot, snapshot, "sweargo-group-1"):
            lab.backend.remove_snapshot(name)
        with pytest.raises(ConfigError, match=f"cannot start a sandbox from snapshot {snapshot} .ResourceNotFound"):
            lab.make(snapshot=snapshot)
