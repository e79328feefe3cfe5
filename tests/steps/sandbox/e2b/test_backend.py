"""Backend e2b, by the real SDK, against a server that speaks its protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from werkzeug.wrappers import Response

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.planning.sandboxes import prepare_sandboxes
from swe_argo.steps.sandbox import jobs
from swe_argo.steps.sandbox.diagnosis import diagnose
from swe_argo.steps.sandbox.e2b.orphans import e2b_sandboxes
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.envd.failures import retrying
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import SandboxRequest
from swe_argo.steps.sandbox.readiness import SandboxNeeds, ready
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from swe_argo.steps.settings import settings
from tests.steps.sandbox.conformance import Conformance, run, says
from tests.steps.sandbox.e2b.lab import E2BLab
from tests.steps.sandbox.envd.lab import IMAGE, LABELS

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


class TestE2B(Conformance):
    pass


class TestMaking:
    def test_lost_answer_makes_one_sandbox(self, lab: E2BLab) -> None:
        before = {machine.number for machine in lab.server.machines.list_all()}
        lab.server.faults.lost_create_answers = 1
        box = lab.make()
        new_ids = {machine.number for machine in lab.server.machines.list_all()} - before
        assert new_ids == {box.transport.sandbox_id}

    def test_transient_error_is_retried(self, lab: E2BLab) -> None:
        lab.server.faults.create_statuses.extend([503, 429])
        assert says(lab.make(), "cat hello.txt") == "hello\n"

    def test_sandbox_is_labelled_and_closed(self, lab: E2BLab) -> None:
        lab.make(name="sb-test-whose")
        body = lab.server.control.creates[-1]
        assert {key: body["metadata"][key] for key in LABELS} == LABELS
        assert (body["timeout"], body["allow_internet_access"]) == (900, False)
        assert body["metadata"]["name"] == "sb-test-whose"

    def test_image_without_template_is_named(self, lab: E2BLab) -> None:
        with pytest.raises(ConfigError, match="image other/image:2") as caught:
            lab.make(image="other/image:2")
        assert caught.value.failure_class is FailureClass.IMAGE_MISSING
        assert template_name("other/image:2") in caught.value.reason

    def test_mapping_beats_template_names(self, lab: E2BLab, tmp_path: Path) -> None:
        file = tmp_path / "templates.json"
        file.write_text(f'{{"other/image:2": "{template_name(IMAGE)}"}}')
        backend = lab.connect(templates=str(file))
        box = backend.create(SandboxRequest("sb-test-mapped", "other/image:2", 60, network=False))
        assert says(box, "cat hello.txt") == "hello\n"
        backend.destroy(box)

    def test_lifetime_is_capped_by_the_plan(self, lab: E2BLab) -> None:
        lab.make(deadline_s=7200)
        assert lab.server.control.creates[-1]["timeout"] == 3600

    def test_refused_lifetime_is_config_error(self, lab: E2BLab) -> None:
        pro = lab.connect(longest_life_s=86400)
        with pytest.raises(ConfigError, match="cannot be greater than"):
            pro.create(SandboxRequest("sb-test-long", IMAGE, 7200, network=False))

    def test_refused_key_is_named(self, lab: E2BLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("E2B_API_KEY", "e2b_wrong")
        settings.cache_clear()
        try:
            with pytest.raises(ConfigError, match="E2B_API_KEY"):
                lab.connect().create(SandboxRequest("sb-test-key", IMAGE, 60, network=False))
            diagnosis = diagnose("e2b", SandboxSpec())
            assert diagnosis.well is False
            assert "E2B_API_KEY" in diagnosis.detail
        finally:
            monkeypatch.undo()
            settings.cache_clear()

    def test_missing_certificates_are_named(self, lab: E2BLab) -> None:
        """As in an image without ca-certificates: the SDK's client cannot even be made, for a plain address neither."""
        nowhere = {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}
        ask = "from swe_argo.steps.contracts.sandbox_spec import SandboxSpec\n"
        ask += "from swe_argo.steps.sandbox.diagnosis import diagnose\n"
        program = [sys.executable, "-c", f"{ask}print(diagnose('e2b', SandboxSpec()))"]
        output = subprocess.run(
            program, env={**os.environ, **nowhere}, capture_output=True, text=True, check=True
        ).stdout
        assert "well=False" in output
        assert "the E2B client cannot start" in output
        assert "ca-certificates" in output


class TestCommands:
    @pytest.mark.parametrize("drops", [1, 3])
    @pytest.mark.parametrize("fault", ["dropped_before", "dropped_during", "dropped_after"])
    def test_command_survives_drops(self, lab: E2BLab, fault: str, drops: int) -> None:
        box = lab.make()
        setattr(lab.server.faults, fault, drops)
        result = run(box, "echo once >>count; seq 20000; sleep 0.3; echo done; echo bad >&2; exit 3")
        assert (result.exit_code, result.timed_out, result.stderr) == (3, False, b"bad\n")
        assert result.stdout == "".join(f"{i}\n" for i in range(1, 20001)).encode() + b"done\n"
        assert says(box, "cat count") == "once\n"

    def test_short_command_is_one_process(self, lab: E2BLab) -> None:
        box = lab.make()
        for command, expected in (("cat hello.txt", (0, b"hello\n")), ("exit 7", (7, b""))):
            process_counts = []
            for _ in range(10):
                before = lab.server.processes.started
                result = run(box, command)
                assert (result.exit_code, result.stdout) == expected
                process_counts.append(lab.server.processes.started - before)
            assert min(process_counts) == 1, process_counts  # a busy machine may lose what it listened to, and polls

    def test_end_marker_in_output_is_ignored(self, lab: E2BLab) -> None:
        result = run(lab.make(), "head -c 5000 /dev/zero; echo; echo 0 no 0; exit 9", max_output_bytes=100)
        assert (result.exit_code, result.stdout, result.truncated) == (9, bytes(100), True)

    def test_command_may_hold_invalid_utf8(self, lab: E2BLab) -> None:
        assert run(lab.make(), "printf '\udcff'").stdout == b"\xff"

    def test_exec_polls_when_listening_fails(self, lab: E2BLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jobs, "LISTEN_S", 0)
        assert says(lab.make(), "echo begun; sleep 0.5; echo done") == "begun\ndone\n"

    def test_path_is_the_machines_own(self, lab: E2BLab) -> None:
        box = lab.make()
        own = lab.server.machines.find(box.transport.sandbox_id)
        assert own is not None
        assert says(box, "echo $PATH") == says(own.box, "echo $PATH")

    def test_exec_reads_no_login_profile(self, lab: E2BLab) -> None:
        """What the SDK's own commands do read: an image's PATH, conda's say, is lost to them."""
        box = lab.make()
        before = says(box, "echo $PATH")
        says(box, "echo 'export PATH=/nowhere' >~/.bash_profile")
        assert says(box, "echo $PATH") == before
        sdk = box.transport._control.client()
        assert sdk.commands.run("echo $PATH", user="root").stdout == "/nowhere\n"

    def test_early_end_is_no_outside_failure(self, lab: E2BLab) -> None:
        box = lab.make()
        assert box.outside_failure() is None
        lab.kill(box)
        assert box.outside_failure() is None
        with pytest.raises(InfraError, match="no longer exists"):
            run(box, "true")

    @pytest.mark.parametrize("body", ["<html>", "{}", "[1]", "null", "\0\0\0\0\3{{{"])
    def test_invalid_answer_breaks_sandbox(self, lab: E2BLab, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
        box = lab.make()
        monkeypatch.setattr("swe_argo.steps.sandbox.envd.machine.retrying", lambda: retrying(attempts=2))
        monkeypatch.setattr(lab.server, "answer_envd", lambda _request, _number, *wsgi: Response(body)(*wsgi))
        with pytest.raises(SandboxBroken):
            as_untrusted(box).write("/tmp/large", b"a" * 200_000)

    def test_capped_deadline_is_not_believed(self, lab: E2BLab) -> None:
        whole = lab.make(deadline_s=5)
        short = lab.connect(longest_life_s=5).create(SandboxRequest("sb-test-cut", IMAGE, 60, network=False))
        time.sleep(5.2)
        assert "deadline of 5 s" in str(whole.outside_failure())
        assert short.outside_failure() is None
        lab.destroy(short)


class TestAccount:
    def test_ready_refuses_missing_templates(self, lab: E2BLab) -> None:
        spec = SandboxSpec(backend="e2b")
        needs = SandboxNeeds([IMAGE], acts=True, solves=True, grading_network=True, timeout_s=60)
        assert ready(spec, needs).notices == []
        missing = SandboxNeeds(
            [IMAGE, "gone:1"], acts=True, solves=True, grading_network=True, timeout_s=60, selection="rows.jsonl --k 2"
        )
        refusing = SandboxSpec.model_validate({"backend": "e2b", "e2b": {"build_templates": False}})
        refusal = (
            r"1 of 2 images have no template at E2B \(first: .*gone:1.*swe-argo templates build rows.jsonl --k 2, or"
        )
        with pytest.raises(ConfigError, match=refusal):
            ready(refusing, missing)

    def test_ready_builds_missing_templates(self, lab: E2BLab, checkout: Path) -> None:
        shutil.copytree(checkout, lab.server.machines.images / "own__image:3" / "testbed")
        needs = SandboxNeeds(["own/image:3"], acts=True, solves=True, grading_network=True, timeout_s=60)
        assert ready(SandboxSpec(backend="e2b"), needs).notices == []
        assert says(lab.make(image="own/image:3"), "cat hello.txt") == "hello\n"
        failing = SandboxNeeds(["gone:1"], acts=True, solves=True, grading_network=True, timeout_s=60)
        with pytest.raises(ConfigError, match=r"could not build 1 of 1 templates.*gone:1.*manifest unknown"):
            ready(SandboxSpec(backend="e2b"), failing)

    def test_too_long_command_is_refused(self, lab: E2BLab) -> None:
        needs = SandboxNeeds([IMAGE], acts=True, solves=True, grading_network=True, timeout_s=3100)
        with pytest.raises(ConfigError, match=r"lives 3600 s at most.*--agent-timeout"):
            ready(SandboxSpec(backend="e2b"), needs)

    @pytest.mark.parametrize("agent", ["gold", "given", "idle"])
    def test_agent_time_counts_for_solving(self, lab: E2BLab, agent: str) -> None:
        row = {"instance_id": "i__1", "image": IMAGE}
        spec = RunSpec.model_validate(
            {"dataset": "rows.jsonl", "sandbox": {"backend": "e2b"}, "agent": {"name": agent, "timeout_s": 7200}}
        )
        assert prepare_sandboxes(spec, "rows", [row], {}).notices == []
        solving = spec.model_copy(update={"agent": spec.agent.model_copy(update={"name": "oneshot"})})
        with pytest.raises(ConfigError, match="agent or tests may take 7200 s"):
            prepare_sandboxes(solving, "rows", [row], {})

    def test_diagnose_reports_the_address(self, lab: E2BLab) -> None:
        diagnosis = diagnose("e2b", SandboxSpec())
        assert (diagnosis.well, diagnosis.detail) == (True, f"{lab.server.address} accepts the key")

    def test_orphans_are_of_dead_owners_only(self, lab: E2BLab) -> None:
        mine = lab.make(name="sb-test-mine")
        orphan = lab.make(name="sb-test-left")
        machine = lab.server.machines.find(orphan.transport.sandbox_id)
        assert machine is not None
        here = machine.metadata["owner"].partition(":")[0]
        machine.metadata["owner"] = f"{here}:999999999:1"
        assert e2b_sandboxes().find_orphans() == {"sb-test-left": orphan.transport.sandbox_id}
        assert mine.transport.sandbox_id not in e2b_sandboxes().find_orphans().values()
