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
    def test_a_start_whose_answer_was_lost_makes_one_sandbox(self, lab: AGSLab) -> None:
        before = {machine.number for machine in lab.server.machines.list_all()}
        lab.server.faults.lost_start_answers = 1
        box = lab.make()
        made = {machine.number for machine in lab.server.machines.list_all()} - before
        assert made == {box.transport.sandbox_id}

    def test_a_start_that_is_refused_for_now_is_tried_again(self, lab: AGSLab) -> None:
        lab.server.faults.codes["StartSandboxInstance"] = deque(["RequestLimitExceeded", "InternalError.Unknown"])
        lab.server.faults.statuses.extend([502, 429])
        assert says(lab.make(), "cat hello.txt") == "hello\n"

    def test_a_sandbox_says_whose_it_is_has_no_privileges_and_reaches_nothing(self, lab: AGSLab) -> None:
        box = lab.make(name="sb-test-whose", cpus=2, memory_mb=4096)
        body = lab.server.control.starts[-1]
        metadata = {each["Name"]: each["Value"] for each in body["Metadata"]}
        assert {key: metadata[key] for key in LABELS} == LABELS
        assert (body["Timeout"], body["ToolName"], metadata["name"]) == ("900s", "swe-argo-sandbox", "sb-test-whose")
        configuration = body["CustomConfiguration"]
        assert (configuration["Image"], configuration["SecurityContext"]) == (IMAGE, {"Privileged": False})
        assert configuration["Resources"] == {"CPU": "2", "Memory": "4096Mi"}
        made = lab.server.control.instance_of(box.transport.sandbox_id)
        assert (made.privileged, made.machine.network) == (False, False)

    def test_a_sandbox_is_waited_for_until_it_runs(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.faults, "looks_until_running", 2)
        assert says(lab.make(), "cat hello.txt") == "hello\n"

    def test_a_sandbox_that_fails_to_start_is_removed_and_told(
        self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lab.server.faults, "looks_until_running", 1)
        before = len(lab.server.machines.list_all())
        lab.server.faults.failing_starts = 1
        with pytest.raises(InfraError, match="is FAILED, not running") as caught:
            lab.make()
        assert caught.value.failure_class is FailureClass.SANDBOX_CREATE
        assert len(lab.server.machines.list_all()) == before

    def test_who_finds_the_quota_used_up_waits_for_a_place(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert re.fullmatch(r"(\d+) of the account's \1 sandboxes run", note)
        assert start_refusals().latest() is None

    def test_who_is_refused_for_the_quota_waits_too(self, lab: AGSLab) -> None:
        lab.server.faults.codes["DescribeQuotaOverview"] = deque(["UnauthorizedOperation"] * 3)
        lab.server.faults.codes["StartSandboxInstance"] = deque(["LimitExceeded.SandboxInstance"] * 2)
        before = len(lab.server.control.start_tokens)
        assert says(lab.make(), "cat hello.txt") == "hello\n"
        assert len(set(lab.server.control.start_tokens[before:])) == 3, "what follows a refusal has a token of its own"

    def test_an_image_that_is_missing_is_named_with_the_command_that_copies_it(self, lab: AGSLab) -> None:
        with pytest.raises(ConfigError, match=r"image other/image:2.*swe-argo ags sync") as caught:
            lab.make(image="other/image:2")
        assert caught.value.failure_class is FailureClass.IMAGE_MISSING

    def test_a_tool_that_is_missing_is_named_with_the_command_that_makes_it(self, lab: AGSLab) -> None:
        backend = lab.connect(tool_prefix="none")
        with pytest.raises(
            ConfigError, match=r"ap-shanghai has no tool none-sandbox .*image test/image:1: swe-argo ags"
        ):
            backend.create(SandboxRequest("sb-test-tool", IMAGE, 60, network=False))

    def test_a_tool_of_another_name_is_found_by_its_tags(self, lab: AGSLab) -> None:
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

    def test_a_tool_whose_sandboxes_are_privileged_gives_none(self, lab: AGSLab) -> None:
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

    def test_a_mapping_says_where_the_image_is(self, lab: AGSLab, tmp_path: Path) -> None:
        file = tmp_path / "images.json"
        file.write_text(json.dumps({"other/image:2": {"tcr_image": IMAGE, "image_registry_type": "enterprise"}}))
        backend = lab.connect(mapping=str(file))
        box = backend.create(SandboxRequest("sb-test-mapped", "other/image:2", 60, network=False))
        assert says(box, "cat hello.txt") == "hello\n"
        backend.destroy(box)
        assert lab.server.control.starts[-1]["CustomConfiguration"]["ImageRegistryType"] == "enterprise"

    def test_a_life_is_no_longer_than_the_accounts(self, lab: AGSLab) -> None:
        lab.make(deadline_s=7200)
        assert lab.server.control.starts[-1]["Timeout"] == "3600s"

    @pytest.mark.parametrize("name", ["TENCENTCLOUD_SECRET_ID", "TENCENTCLOUD_SECRET_KEY"])
    def test_credentials_that_are_refused_are_named_with_the_region(
        self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "wrong")
        forget_settings()
        try:
            with pytest.raises(ConfigError, match=r"region ap-shanghai refuses.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"):
                lab.connect().create(SandboxRequest("sb-test-key", IMAGE, 60, network=False))
            found = diagnose("ags", SandboxSpec())
            assert found.well is False
            assert "TENCENTCLOUD_SECRET_KEY" in found.detail
        finally:
            monkeypatch.undo()
            forget_settings()

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_gateway_that_refuses_is_asked_once_and_region_and_credentials_are_named(
        self, lab: AGSLab, status: int
    ) -> None:
        asked = len(lab.server.control.starts)
        lab.server.faults.statuses.extend([status] * 2)  # to the question for the quota, and to the start
        refused = rf"region ap-shanghai refuses.*HTTP {status}: .*not now.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"
        with pytest.raises(ConfigError, match=refused):
            lab.make()
        assert not lab.server.faults.statuses
        assert len(lab.server.control.starts) == asked

    @pytest.mark.parametrize("status", [404, 407])
    def test_what_is_not_the_service_is_told_by_its_status_and_address(self, lab: AGSLab, status: int) -> None:
        lab.server.faults.statuses.append(status)
        with pytest.raises(ConfigError, match=rf"HTTP {status}: .*AGS_ENDPOINT and the proxy"):
            ags_sandboxes().find_orphans()
        assert ags_sandboxes().find_orphans() == {}

    def test_a_sandbox_begins_with_what_a_snapshot_holds_and_no_snapshot_is_left(self, lab: AGSLab) -> None:
        box = lab.make()
        run(box, "echo kept >kept.txt")
        kept = lab.backend.snapshot(box, "sweargo-group-1")
        assert lab.backend.snapshot(box, "sweargo-group-1") == kept
        other = lab.make(snapshot=kept)
        assert says(other, "cat kept.txt") == "kept\n"
        assert not lab.server.control.instance_of(other.transport.sandbox_id).privileged
        for name in (kept, kept, "sweargo-group-1"):
            lab.backend.remove_snapshot(name)
        with pytest.raises(ConfigError, match=f"no sandbox from snapshot {kept} .ResourceNotFound"):
            lab.make(snapshot=kept)
