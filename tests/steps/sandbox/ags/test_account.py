"""What a run hears of the account of AGS, and finds there that others left."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.ags.backend import connect
from swe_argo.steps.sandbox.ags.orphans import ags_sandboxes
from swe_argo.steps.sandbox.ags.service import ask
from swe_argo.steps.sandbox.diagnosis import diagnose
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.orphans import list_orphans, list_run
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.sandbox.readiness import SandboxNeeds, ready
from tests.steps.sandbox.ags.lab import AGSLab
from tests.steps.sandbox.envd.lab import IMAGE, LABELS

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


def needs(images: list[str], timeout_s: float = 60) -> SandboxNeeds:
    return SandboxNeeds(images, acts=True, solves=True, grading_network=True, timeout_s=timeout_s)


class TestAccount:
    def test_ready_reports_the_quota(self, lab: AGSLab) -> None:
        [notice] = ready(SandboxSpec(backend="ags"), needs([IMAGE])).notices
        assert notice.startswith("AGS in ap-shanghai runs 100 sandboxes at a time")

    def test_price_comes_from_the_spec(self, lab: AGSLab) -> None:
        spec = SandboxSpec.model_validate({"backend": "ags", "ags": {"usd_per_hour": 0.12}})
        assert ready(spec, needs([IMAGE])).usd_per_hour == 0.12
        assert ready(SandboxSpec(backend="ags"), needs([IMAGE])).usd_per_hour is None
        backend = connect(spec)
        box = backend.create(SandboxRequest("sb-test-price", IMAGE, 60, network=False))
        backend.destroy(box)
        assert box.machine.usd_per_hour == 0.12

    def test_missing_tools_name_the_command(self, lab: AGSLab) -> None:
        spec = SandboxSpec.model_validate({"backend": "ags", "ags": {"tool_per_image": True, "tool_prefix": "x"}})
        with pytest.raises(
            ConfigError, match=r"gone:1: create it with swe-argo ags sync DATASET --ags-tool-per-image.*1 more are"
        ):
            ready(spec, needs(["gone:1", "gone:2"]))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"NetworkConfiguration": {"NetworkMode": "VPC"}}, "has network mode VPC, but PUBLIC is required"),
            ({"CustomConfiguration": {"SecurityContext": {"Privileged": True}}}, "privileged"),
        ],
    )
    def test_unsafe_tool_is_refused(
        self, lab: AGSLab, change: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [number] = [
            tool_id for tool_id, tool in lab.server.control.tools.all.items() if tool["ToolName"] == "swe-argo-public"
        ]
        for key, value in change.items():
            monkeypatch.setitem(lab.server.control.tools.all[number], key, value)
        with pytest.raises(ConfigError, match=reason):
            ready(SandboxSpec(backend="ags"), needs([IMAGE]))

    def test_too_long_command_is_refused(self, lab: AGSLab) -> None:
        with pytest.raises(ConfigError, match=r"lives 3600 s at most.*--agent-timeout"):
            ready(SandboxSpec(backend="ags"), needs([IMAGE], timeout_s=3100))

    def test_diagnose_reports_usage(self, lab: AGSLab) -> None:
        diagnosis = diagnose("ags", SandboxSpec())
        assert diagnosis.well
        assert re.fullmatch(
            r"region ap-shanghai accepts the credentials; \d+ of 100 sandboxes in use", diagnosis.detail
        )

    def test_orphans_are_of_dead_owners_only(self, lab: AGSLab) -> None:
        mine = lab.make(name="sb-test-mine")
        orphan = lab.make(name="sb-test-left")
        machine = lab.server.machines.find(orphan.transport.sandbox_id)
        assert machine is not None
        here = machine.metadata["owner"].partition(":")[0]
        machine.metadata["owner"] = f"{here}:999999999:1"
        assert ags_sandboxes().find_orphans() == {"sb-test-left": orphan.transport.sandbox_id}
        orphans = list_orphans("ags", SandboxSpec())
        assert orphans.where == "AGS in ap-shanghai"
        assert orphans.remove() == {}
        assert lab.server.machines.find(orphan.transport.sandbox_id) is None
        assert lab.server.machines.find(mine.transport.sandbox_id) is not None

    def test_list_run_finds_by_run_and_store(self, lab: AGSLab) -> None:
        ours = lab.make(name="sb-test-ours", labels={**LABELS, "run": "over"}, store_id="here")
        lab.make(name="sb-test-others", labels={**LABELS, "run": "over"}, store_id="there")
        assert list_run("ags", "over", "here").names == ["sb-test-ours"]
        assert list_run("ags", "over").names == ["sb-test-others", "sb-test-ours"]
        assert list_run("ags", "over", "here").remove() == {}
        assert lab.server.machines.find(ours.transport.sandbox_id) is None
        assert list_run("ags", "over").names == ["sb-test-others"]

    def test_list_run_repeats_equal_names(self, lab: AGSLab) -> None:
        for _ in range(2):
            box = lab.make(name=f"sb-test-{time.monotonic_ns()}", labels={**LABELS, "run": "twice"})
            machine = lab.server.machines.find(box.transport.sandbox_id)
            assert machine is not None
            machine.metadata["name"] = "sb-test-twice"
        assert len(list_run("ags", "twice").names) == 2

    def test_exit_at_start_leaves_nothing(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.control.faults, "looks_until_running", 1)
        before = {machine.number for machine in lab.server.machines.list_all()}

        def interrupted(_instance_id: str) -> None:
            raise SystemExit(143)

        monkeypatch.setattr("swe_argo.steps.sandbox.ags.start.describe", interrupted)
        with pytest.raises(SystemExit):
            lab.make(name="sb-test-told")
        assert {machine.number for machine in lab.server.machines.list_all()} == before

    def test_interrupted_start_is_undone(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: list[dict[str, Any]] = []

        def interrupted(action: str, parameters: dict[str, Any]) -> dict[str, Any]:
            answer = ask(action, parameters)
            if action == "StartSandboxInstance":
                answers.append(answer)
                raise KeyboardInterrupt
            return answer

        monkeypatch.setattr("swe_argo.steps.sandbox.ags.start.ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lab.make(name="sb-test-interrupted")
        [answer] = answers
        assert lab.server.machines.find(answer["Instance"]["InstanceId"]) is None
