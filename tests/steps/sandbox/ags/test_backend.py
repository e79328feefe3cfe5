"""Backend ags, by the real SDKs, against a server that speaks their protocols.

Commands and files go through envd as at E2B, whose tests show that part.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.contracts.data import TaskMachine
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import AGSSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.ags.backend import AGSBackend
from swe_argo.steps.sandbox.ags.control import start_refusals
from swe_argo.steps.sandbox.ags.service import request_action
from swe_argo.steps.sandbox.ags.tools import ServiceImage, configuration, tool_name
from swe_argo.steps.sandbox.envd.machine import parse_time
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxNeeds
from tests.steps.sandbox.ags.lab import AGSLab, forget_settings, laboratory
from tests.steps.sandbox.ags.server import Instance
from tests.steps.sandbox.conformance import Conformance, run, says
from tests.steps.sandbox.envd.lab import orphan
from tests.steps.sandbox.lab import IMAGE, LABELS
from tests.workflows.command import wait_for

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
SPEC = SandboxSpec(backend="ags")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Iterator[AGSLab]:
    with laboratory(tmp_path_factory.mktemp("ags"), checkout) as lab:
        yield lab


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Variables to set, followed by ``forget_settings``."""
    yield monkeypatch
    monkeypatch.undo()
    forget_settings()


def numbers(lab: AGSLab) -> set[str]:
    return {machine.number for machine in lab.server.machines.list_all()}


@pytest.mark.long
class TestAGS(Conformance):
    pass


# -- creation


def test_lost_answer_makes_one_sandbox(lab: AGSLab) -> None:
    before = numbers(lab)
    lab.server.faults.lost_start_answers = 1
    box = lab.make()
    assert numbers(lab) - before == {box.transport.sandbox_id}


def test_create_waits_until_running(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.server.faults, "looks_until_running", 2)
    lab.server.faults.codes["StartSandboxInstance"] = deque(["RequestLimitExceeded"])
    lab.server.faults.statuses.append(502)
    assert says(lab.make(), "cat hello.txt") == "hello\n"


def test_sandbox_is_labelled_and_closed(lab: AGSLab) -> None:
    box = lab.make(name="sb-test", cpus=2, memory_mb=4096, deadline_s=7200)
    body = lab.server.control.starts[-1]
    metadata = {entry["Name"]: entry["Value"] for entry in body["Metadata"]}
    assert {key: metadata[key] for key in (*LABELS, "name")} == {**LABELS, "name": "sb-test"}
    assert (body["Timeout"], body["ToolName"]) == ("3600s", "swe-argo-sandbox"), "the account caps a sandbox's life"
    custom = body["CustomConfiguration"]
    assert (custom["Image"], custom["SecurityContext"]) == (IMAGE, {"Privileged": False})
    assert custom["Resources"] == {"CPU": "2", "Memory": "4096Mi"}
    instance = instance_of(lab, box)
    assert (instance.privileged, instance.machine.network) == (False, False)


def test_failed_start_is_removed(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.server.faults, "looks_until_running", 1)
    before = numbers(lab)
    lab.server.faults.failing_starts = 1
    with pytest.raises(InfraError, match="is FAILED, not running") as caught:
        lab.make()
    assert caught.value.failure_class is FailureClass.SANDBOX_CREATE
    assert numbers(lab) == before


def test_create_waits_for_quota(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lab.make()
    monkeypatch.setattr(lab.server.control, "quota", len(lab.server.machines.list_all()))
    notes: list[str] = []

    def destroy_when_refused() -> None:
        while (refusal := start_refusals().latest()) is None:
            time.sleep(0.05)
        notes.append(refusal.why)
        lab.destroy(first)

    thread = threading.Thread(target=destroy_when_refused, daemon=True)
    thread.start()
    assert says(lab.make(), "cat hello.txt") == "hello\n"
    thread.join()
    assert lab.server.control.refused_for_quota == 0
    assert re.fullmatch(r"(\d+) of the account's \1 sandboxes are in use", notes[0])
    assert start_refusals().latest() is None


def test_create_retries_on_full_quota(lab: AGSLab) -> None:
    lab.server.faults.codes["DescribeQuotaOverview"] = deque(["UnauthorizedOperation"] * 3)
    lab.server.faults.codes["StartSandboxInstance"] = deque(["LimitExceeded.SandboxInstance"] * 2)
    before = len(lab.server.control.start_tokens)
    assert says(lab.make(), "cat hello.txt") == "hello\n"
    assert len(set(lab.server.control.start_tokens[before:])) == 3, "a start after a refusal has a new token"


def test_missing_image_names_command(lab: AGSLab) -> None:
    with pytest.raises(ConfigError, match=r"image other/image:2.*swe-argo ags sync") as caught:
        lab.make(image="other/image:2")
    assert caught.value.failure_class is FailureClass.IMAGE_MISSING
    no_tool = r"ap-shanghai has no tool none-sandbox .*image test/image:1: create it with swe-argo ags"
    with pytest.raises(ConfigError, match=no_tool):
        lab.connect(tool_prefix="none").create(lab.request())


def add_tool(lab: AGSLab, name: str, custom: dict[str, Any], **options: Any) -> None:
    network = {"NetworkMode": "SANDBOX"}
    body = {"ToolName": name, "ToolType": "custom", "NetworkConfiguration": network, "CustomConfiguration": custom}
    lab.server.control.tools.CreateSandboxTool(body | options)


def test_tool_is_found_by_its_tags(lab: AGSLab) -> None:
    tags = [{"Key": "image", "Value": "row/image:1"}, {"Key": "tcr_image", "Value": IMAGE}]
    add_tool(lab, "made-by-the-guides-script", configuration(ServiceImage(IMAGE, "personal")), Tags=tags)
    box = lab.connect(tool_per_image=True).create(lab.request())
    assert says(box, "cat hello.txt") == "hello\n"
    lab.destroy(box)
    assert lab.server.control.starts[-1]["ToolName"] == "made-by-the-guides-script"
    assert "CustomConfiguration" not in lab.server.control.starts[-1]


def test_privileged_tool_is_refused(lab: AGSLab) -> None:
    table = {"tool_per_image": True, "tool_prefix": "bad"}
    add_tool(lab, tool_name(AGSSpec(**table), IMAGE, "SANDBOX"), {"Image": IMAGE, "ImageRegistryType": "personal"})
    before = numbers(lab)
    with pytest.raises(ConfigError, match="privileged"):
        lab.connect(**table).create(lab.request())
    assert numbers(lab) == before


def test_mapping_locates_the_image(lab: AGSLab, tmp_path: Path) -> None:
    file = tmp_path / "images.json"
    file.write_text(json.dumps({"other/image:2": {"tcr_image": IMAGE, "image_registry_type": "enterprise"}}))
    box = lab.connect(mapping=str(file)).create(lab.request(image="other/image:2"))
    assert says(box, "cat hello.txt") == "hello\n"
    lab.destroy(box)
    assert lab.server.control.starts[-1]["CustomConfiguration"]["ImageRegistryType"] == "enterprise"


def test_snapshot_starts_a_sandbox(lab: AGSLab) -> None:
    box = lab.make()
    run(box, "echo kept >kept.txt")
    snapshot = lab.backend.snapshot(box, "sweargo-group-1")
    assert lab.backend.snapshot(box, "sweargo-group-1") == snapshot
    other = lab.make(snapshot=snapshot)
    assert says(other, "cat kept.txt") == "kept\n"
    assert not instance_of(lab, other).privileged
    for name in (snapshot, snapshot, "sweargo-group-1"):
        lab.backend.remove_snapshot(name)
    with pytest.raises(ConfigError, match=f"cannot start a sandbox from snapshot {snapshot} .ResourceNotFound"):
        lab.make(snapshot=snapshot)


def test_interrupted_start_is_undone(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    before, starts = numbers(lab), len(lab.server.control.starts)
    monkeypatch.setattr(lab.server.control.faults, "looks_until_running", 1)

    def interrupt_start(action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer = request_action(action, parameters)
        if action == "StartSandboxInstance":
            raise KeyboardInterrupt
        return answer

    def exit_at_look(_instance_id: str) -> None:
        raise SystemExit(143)

    for name, function in (("request_action", interrupt_start), ("describe", exit_at_look)):
        with monkeypatch.context() as patch:
            patch.setattr(f"swe_argo.steps.sandbox.ags.control.{name}", function)
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                lab.make()
    assert len(lab.server.control.starts) == starts + 2
    assert numbers(lab) == before


# -- credentials


def instance_of(lab: AGSLab, box: Any) -> Instance:
    return lab.server.control.instance_of(box.transport.sandbox_id)


def test_times_of_the_service_are_parsed() -> None:
    times = (1_780_000_000, "1780000000", "2026-05-28T20:26:40Z", "2026-05-28T20:26:40")
    assert {moment and moment.timestamp() for moment in map(parse_time, times)} == {1_780_000_000}
    assert [parse_time(text) for text in (None, "", "soon", "9" * 30)] == [None] * 4


def test_token_is_renewed_before_expiry(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.server.faults, "token_life_s", 1.2)
    box = lab.make()
    wait_for(lambda: says(box, "cat hello.txt") == "hello\n" and len(instance_of(lab, box).tokens) >= 3)


@pytest.mark.parametrize(
    ("api_key", "own_key", "tokens"),
    [(None, "", [1, 2]), ("ark_0123", "ark_0123", [0, 1]), (None, "e2b_" + "0" * 40, [1, 2])],
    ids=["tokens", "account key", "e2b key"],
)
def test_refused_token_is_replaced(
    lab: AGSLab, environment: pytest.MonkeyPatch, api_key: str | None, own_key: str, tokens: list[int]
) -> None:
    """The account's key replaces tokens; a key of E2B is not sent."""
    environment.setattr(lab.server.control, "api_key", api_key)
    environment.setenv("E2B_API_KEY", own_key)
    forget_settings()
    box = lab.make()
    instance, counts = instance_of(lab, box), []
    for _ in range(2):
        assert says(box, "cat hello.txt") == "hello\n"
        counts.append(len(instance.tokens))
        instance.machine.granted.clear()
    assert counts == tokens


def test_lasting_refusal_names_the_key(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    box = lab.make()
    monkeypatch.setattr(type(lab.machine(box)), "takes_token", lambda *_: False)
    with pytest.raises(InfraError, match=r"refused the token.*check TENCENTCLOUD_SECRET_ID"):
        run(box, "true")


def test_refused_key_names_the_region(lab: AGSLab, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TENCENTCLOUD_SECRET_ID", "wrong")
    forget_settings()
    with pytest.raises(ConfigError, match=r"region ap-shanghai refused.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"):
        lab.make()
    diagnosis = AGSBackend.diagnose(SandboxSpec())
    assert diagnosis.well is False
    assert "TENCENTCLOUD_SECRET_KEY" in diagnosis.detail


@pytest.mark.parametrize("status", [401, 403])
def test_gateway_refusal_is_not_retried(lab: AGSLab, status: int) -> None:
    starts = len(lab.server.control.starts)
    lab.server.faults.statuses.extend([status] * 2)  # for the quota, and for the start
    refused = rf"region ap-shanghai refused.*HTTP {status}: .*not now.*TENCENTCLOUD_SECRET_ID.*AGS_REGION"
    with pytest.raises(ConfigError, match=refused):
        lab.make()
    assert not lab.server.faults.statuses
    assert len(lab.server.control.starts) == starts


@pytest.mark.parametrize("status", [404, 407])
def test_foreign_status_names_address(lab: AGSLab, status: int) -> None:
    lab.server.faults.statuses.append(status)
    with pytest.raises(ConfigError, match=rf"HTTP {status}: .*AGS_ENDPOINT and the proxy"):
        AGSBackend.find_orphans()
    assert AGSBackend.find_orphans() == {}


# -- the account


def needs(*images: str, timeout_s: float = 60) -> SandboxNeeds:
    return SandboxNeeds(list(images), acts=True, solves=True, grading_network=True, timeout_s=timeout_s)


def test_ready_reports_quota_and_price(lab: AGSLab) -> None:
    result = AGSBackend.ready(SPEC, needs(IMAGE))
    [notice] = result.notices
    assert notice.startswith("AGS in ap-shanghai runs 100 sandboxes at a time")
    assert result.usd_per_hour is None
    priced = SandboxSpec.model_validate({"backend": "ags", "ags": {"usd_per_hour": 0.12}})
    assert AGSBackend.ready(priced, needs(IMAGE)).usd_per_hour == 0.12
    box = AGSBackend.connect(priced).create(lab.request())
    lab.destroy(box)
    assert box.machine.usd_per_hour == 0.12


def test_missing_tools_name_the_command(lab: AGSLab) -> None:
    spec = SandboxSpec.model_validate({"backend": "ags", "ags": {"tool_per_image": True, "tool_prefix": "x"}})
    reason = r"gone:1: create it with swe-argo ags sync DATASET --ags-tool-per-image.*1 more are"
    with pytest.raises(ConfigError, match=reason):
        AGSBackend.ready(spec, needs("gone:1", "gone:2"))


def test_ready_checks_tools_of_closed_tasks(lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
    [number] = [key for key, tool in lab.server.control.tools.all.items() if tool["ToolName"] == "swe-argo-sandbox"]
    monkeypatch.delitem(lab.server.control.tools.all, number)
    grading = replace(needs(IMAGE), solves=False)
    AGSBackend.ready(SPEC, grading)
    machines = {IMAGE: [TaskMachine(), TaskMachine(network_mode="allowlist")]}
    with pytest.raises(ConfigError, match=r"no tool swe-argo-sandbox \(network SANDBOX\)"):
        AGSBackend.ready(SPEC, replace(grading, machines=machines))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("NetworkConfiguration", {"NetworkMode": "VPC"}, "has network mode VPC, but PUBLIC is required"),
        ("CustomConfiguration", {"SecurityContext": {"Privileged": True}}, "privileged"),
    ],
)
def test_unsafe_tool_is_refused(
    lab: AGSLab, name: str, value: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [tool] = [tool for tool in lab.server.control.tools.all.values() if tool["ToolName"] == "swe-argo-public"]
    monkeypatch.setitem(tool, name, value)
    with pytest.raises(ConfigError, match=reason):
        AGSBackend.ready(SPEC, needs(IMAGE))


def test_too_long_command_is_refused(lab: AGSLab) -> None:
    with pytest.raises(ConfigError, match=r"lives 3600 s at most.*--agent-timeout"):
        AGSBackend.ready(SPEC, needs(IMAGE, timeout_s=3100))


def test_diagnose_reports_usage(lab: AGSLab) -> None:
    diagnosis = AGSBackend.diagnose(SandboxSpec())
    assert diagnosis.well
    assert re.fullmatch(r"region ap-shanghai accepts the credentials; \d+ of 100 sandboxes in use", diagnosis.detail)


def test_sandboxes_are_found_by_run_and_owner(lab: AGSLab) -> None:
    labels = {**LABELS, "run": "over"}
    own = lab.make(name="sb-ours", labels=labels, store_id="here")
    for _ in range(2):  # equal names are listed twice
        box = lab.make(labels=labels, store_id="there")
        lab.machine(box).metadata["name"] = "sb-others"
    listed = AGSBackend.list_run("over", "here")
    assert (listed.names, listed.where) == (["sb-ours"], "AGS in ap-shanghai")
    assert AGSBackend.find_orphans() == {}
    orphan(lab.machine(own))
    assert list(AGSBackend.find_orphans()) == ["sb-ours"]
    assert [name.split()[0] for name in AGSBackend.list_run("over").names] == ["sb-others", "sb-others", "sb-ours"]
    assert AGSBackend.list_run("over", "here").remove() == {}
    assert [name.split()[0] for name in AGSBackend.list_run("over").names] == ["sb-others"] * 2
