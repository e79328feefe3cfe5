"""Backend ags, by the real SDKs, against a server that speaks their protocols."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from steps.contracts.failure import FailureClass
from steps.contracts.run_spec import AGSSpec, SandboxSpec
from steps.errors import ConfigError, InfraError
from steps.sandbox.ags.backend import AGSBackend, connect
from steps.sandbox.ags.orphans import find_orphans
from steps.sandbox.ags.service import ask, forget_client
from steps.sandbox.ags.start import start_refusals
from steps.sandbox.ags.tools import ServiceImage, configuration, tool_name
from steps.sandbox.diagnosis import diagnose
from steps.sandbox.envd.machine import EnvdSandbox
from steps.sandbox.job_sandbox import JobSandbox
from steps.sandbox.local import bubblewrap
from steps.sandbox.orphans import list_orphans, list_run
from steps.sandbox.protocol import Sandbox, SandboxRequest
from steps.sandbox.readiness import SandboxNeeds, ready
from steps.sandbox.untrusted import SandboxBroken, as_untrusted
from steps.settings import settings
from tests.steps.sandbox.ags.server import AGSServer
from tests.steps.sandbox.conformance import Conformance, run, says

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))

IMAGE = "test/image:1"
LABELS = {"run": "r1", "instance": "i__1", "attempt": "1", "role": "solve"}


def forget_settings() -> None:
    """What the environment said before."""
    settings.cache_clear()
    forget_client()


class AGSLab:
    host = "127.0.0.1"
    shortest_deadline_s = 30.0

    def __init__(self, server: AGSServer) -> None:
        self.server = server
        self.confines_network = self.is_root = server.machines.isolated
        self.backend = self.connect()
        self.made: list[EnvdSandbox] = []

    def connect(self, **table: Any) -> AGSBackend:
        return connect(SandboxSpec.model_validate({"ags": table}))

    def make(self, **options: Any) -> EnvdSandbox:
        name = f"sb-test-{time.monotonic_ns()}"
        defaults = {"name": name, "image": IMAGE, "deadline_s": 120, "network": False, "labels": LABELS}
        box = self.backend.create(SandboxRequest(**{**defaults, **options}))
        self.made.append(box)
        return box

    def create(self, *, network: bool = False, deadline_s: float = 120) -> Sandbox:
        return self.make(network=network, deadline_s=deadline_s)

    def destroy(self, sandbox: Sandbox) -> None:
        self.backend.destroy(sandbox)

    def kill(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, JobSandbox)
        self.server.machines.kill(sandbox.transport.sandbox_id)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[AGSLab]:
    folder = tmp_path_factory.mktemp("ags")
    shutil.copytree(checkout, folder / "images" / "test__image:1" / "testbed")
    server = AGSServer(folder / "images", {IMAGE: IMAGE}, quota=100)
    server.add_shared_tools()
    with server.running(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("E2B_API_KEY", raising=False)
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(folder / "home")}.items():
            patch.setenv(name, value)
        forget_settings()
        lab = AGSLab(server)
        yield lab
        for box in lab.made:
            lab.destroy(box)
        assert server.machines.list_all() == []
    forget_settings()


@pytest.mark.long
class TestAGS(Conformance):
    """Long: what carries commands and files is E2B's, for which it runs in make test."""


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
        assert (body["Timeout"], body["ToolName"], metadata["name"]) == ("120s", "swe-argo-sandbox", "sb-test-whose")
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
            refusal = start_refusals().latest()
            notes.append(refusal.why if refusal else "none")
            lab.destroy(first)

        threading.Timer(1.0, look_and_give_way).start()
        assert says(lab.make(), "cat hello.txt") == "hello\n"
        assert lab.server.control.refused_for_quota == 0
        [note] = notes
        assert re.fullmatch(r"(\d+) of the account's \1 sandboxes run", note)
        assert start_refusals().latest() is None

    def test_who_is_refused_for_the_quota_waits_too(self, lab: AGSLab) -> None:
        lab.server.faults.codes["DescribeQuotaOverview"] = deque(["UnauthorizedOperation"] * 3)
        lab.server.faults.codes["StartSandboxInstance"] = deque(["LimitExceeded.SandboxInstance"] * 2)
        assert says(lab.make(), "cat hello.txt") == "hello\n"
        assert len({body["ClientToken"] for body in lab.server.control.starts[-3:]}) == len(
            lab.server.control.starts[-3:]
        )

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
            find_orphans()
        assert find_orphans() == {}

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


class TestTokens:
    def test_a_token_is_renewed_before_it_ends(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.faults, "token_life_s", 1.2)
        box = lab.make()
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            assert says(box, "cat hello.txt") == "hello\n"
        assert len(lab.server.control.instance_of(box.transport.sandbox_id).tokens) >= 3

    def test_a_token_that_is_refused_is_replaced(self, lab: AGSLab) -> None:
        box = lab.make()
        made = lab.server.control.instance_of(box.transport.sandbox_id)
        made.machine.granted.clear()
        assert says(box, "cat hello.txt") == "hello\n"
        assert len(made.tokens) == 2

    def test_a_key_of_the_account_takes_the_place_of_a_token(
        self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lab.server.control, "api_key", "ark_0123")
        monkeypatch.setenv("E2B_API_KEY", "ark_0123")
        forget_settings()
        try:
            box = lab.make()
            assert says(box, "cat hello.txt") == "hello\n"
            made = lab.server.control.instance_of(box.transport.sandbox_id)
            assert made.tokens == []
            made.machine.granted.clear()
            assert says(box, "cat hello.txt") == "hello\n"
            assert len(made.tokens) == 1
        finally:
            monkeypatch.undo()
            forget_settings()

    def test_a_key_of_e2b_is_not_shown_to_tencent(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
        forget_settings()
        try:
            box = lab.make()
            assert len(lab.server.control.instance_of(box.transport.sandbox_id).tokens) == 1
        finally:
            monkeypatch.undo()
            forget_settings()


class TestCommands:
    @pytest.mark.parametrize("fault", ["dropped_before", "dropped_during", "dropped_after"])
    def test_a_dropped_connection_neither_loses_nor_repeats_a_command(self, lab: AGSLab, fault: str) -> None:
        box = lab.make()
        setattr(lab.server.faults, fault, 2)
        result = run(box, "echo once >>count; seq 20000; sleep 0.3; echo done; echo bad >&2; exit 3")
        assert (result.exit_code, result.timed_out, result.stderr) == (3, False, b"bad\n")
        assert result.stdout == "".join(f"{i}\n" for i in range(1, 20001)).encode() + b"done\n"
        assert says(box, "cat count") == "once\n"

    def test_who_answers_for_envd_and_refuses_its_token_broke_the_sandbox(
        self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        box = lab.make()
        made = lab.server.control.instance_of(box.transport.sandbox_id)
        monkeypatch.setattr(type(made.machine), "takes_token", lambda *_: False)
        with pytest.raises(InfraError, match=r"refuses the token.*check TENCENTCLOUD_SECRET_ID"):
            run(box, "true")
        with pytest.raises(SandboxBroken):
            run(as_untrusted(box), "true")

    def test_that_it_is_gone_before_its_time_is_not_believed_of_foreign_code(self, lab: AGSLab) -> None:
        box = lab.make()
        assert box.outside_failure() is None
        lab.kill(box)
        assert box.outside_failure() is None
        with pytest.raises(InfraError, match="is gone"):
            run(box, "true")


def needs(images: list[str], timeout_s: float = 60) -> SandboxNeeds:
    return SandboxNeeds(images, acts=True, solves=True, grading_network=True, timeout_s=timeout_s)


class TestAccount:
    def test_a_run_is_ready_where_its_tools_are_and_hears_of_the_quota(self, lab: AGSLab) -> None:
        [notice] = ready(SandboxSpec(backend="ags"), needs([IMAGE])).notices
        assert notice.startswith("AGS in ap-shanghai runs 100 sandboxes at a time")

    def test_what_a_sandbox_costs_is_known_where_it_is_said(self, lab: AGSLab) -> None:
        spec = SandboxSpec.model_validate({"backend": "ags", "ags": {"usd_per_hour": 0.12}})
        assert ready(spec, needs([IMAGE])).usd_per_hour == 0.12
        assert ready(SandboxSpec(backend="ags"), needs([IMAGE])).usd_per_hour is None
        backend = connect(spec)
        box = backend.create(SandboxRequest("sb-test-price", IMAGE, 60, network=False))
        backend.destroy(box)
        assert box.machine.usd_per_hour == 0.12

    def test_missing_tools_are_named_with_the_command_that_makes_them(self, lab: AGSLab) -> None:
        spec = SandboxSpec.model_validate({"backend": "ags", "ags": {"tool_per_image": True, "tool_prefix": "x"}})
        with pytest.raises(ConfigError, match=r"gone:1: swe-argo ags sync DATASET --ags-tool-per-image.*1 more are"):
            ready(spec, needs(["gone:1", "gone:2"]))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"NetworkConfiguration": {"NetworkMode": "VPC"}}, "has network mode VPC, and PUBLIC is needed"),
            ({"CustomConfiguration": {"SecurityContext": {"Privileged": True}}}, "privileged"),
        ],
    )
    def test_a_tool_that_is_not_as_it_must_be_is_refused(
        self, lab: AGSLab, change: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [number] = [
            each for each, tool in lab.server.control.tools.all.items() if tool["ToolName"] == "swe-argo-public"
        ]
        for key, value in change.items():
            monkeypatch.setitem(lab.server.control.tools.all[number], key, value)
        with pytest.raises(ConfigError, match=reason):
            ready(SandboxSpec(backend="ags"), needs([IMAGE]))

    def test_a_command_longer_than_a_sandbox_may_live_is_refused(self, lab: AGSLab) -> None:
        with pytest.raises(ConfigError, match=r"lives 3600 s at most.*--agent-timeout"):
            ready(SandboxSpec(backend="ags"), needs([IMAGE], timeout_s=3100))

    def test_the_account_tells_of_itself(self, lab: AGSLab) -> None:
        found = diagnose("ags", SandboxSpec())
        assert found.well
        assert re.fullmatch(r"region ap-shanghai takes the credentials: \d+ of 100 sandboxes run", found.detail)

    def test_only_what_a_dead_process_left_is_an_orphan(self, lab: AGSLab) -> None:
        mine = lab.make(name="sb-test-mine")
        left = lab.make(name="sb-test-left")
        machine = lab.server.machines.find(left.transport.sandbox_id)
        assert machine is not None
        here = machine.metadata["owner"].partition(":")[0]
        machine.metadata["owner"] = f"{here}:999999999:1"
        assert find_orphans() == {"sb-test-left": left.transport.sandbox_id}
        orphans = list_orphans("ags", SandboxSpec())
        assert orphans.where == "AGS in ap-shanghai"
        assert orphans.remove() == {}
        assert lab.server.machines.find(left.transport.sandbox_id) is None
        assert lab.server.machines.find(mine.transport.sandbox_id) is not None

    def test_what_a_run_left_is_found_by_run_and_store_whoever_made_it(self, lab: AGSLab) -> None:
        ours = lab.make(name="sb-test-ours", labels={**LABELS, "run": "over"}, store_id="here")
        lab.make(name="sb-test-others", labels={**LABELS, "run": "over"}, store_id="there")
        assert list_run("ags", "over", "here").names == ["sb-test-ours"]
        assert list_run("ags", "over").names == ["sb-test-others", "sb-test-ours"]
        assert list_run("ags", "over", "here").remove() == {}
        assert lab.server.machines.find(ours.transport.sandbox_id) is None
        assert list_run("ags", "over").names == ["sb-test-others"]

    def test_two_of_one_name_are_two(self, lab: AGSLab) -> None:
        for _ in range(2):
            box = lab.make(name=f"sb-test-{time.monotonic_ns()}", labels={**LABELS, "run": "twice"})
            machine = lab.server.machines.find(box.transport.sandbox_id)
            assert machine is not None
            machine.metadata["name"] = "sb-test-twice"
        assert len(list_run("ags", "twice").names) == 2

    def test_who_is_told_to_end_while_one_starts_leaves_none(
        self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lab.server.control.faults, "looks_until_running", 1)
        before = {machine.number for machine in lab.server.machines.list_all()}

        def interrupted(_instance_id: str) -> None:
            raise SystemExit(143)

        monkeypatch.setattr("steps.sandbox.ags.start.describe", interrupted)
        with pytest.raises(SystemExit):
            lab.make(name="sb-test-told")
        assert {machine.number for machine in lab.server.machines.list_all()} == before

    def test_a_start_that_is_given_up_leaves_no_sandbox(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: list[dict[str, Any]] = []

        def interrupted(action: str, parameters: dict[str, Any]) -> dict[str, Any]:
            answer = ask(action, parameters)
            if action == "StartSandboxInstance":
                answers.append(answer)
                raise KeyboardInterrupt
            return answer

        monkeypatch.setattr("steps.sandbox.ags.start.ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lab.make(name="sb-test-interrupted")
        [answer] = answers
        assert lab.server.machines.find(answer["Instance"]["InstanceId"]) is None
