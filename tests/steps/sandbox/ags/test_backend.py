"""Backend ags, by the real SDKs, against a server that speaks their protocols."""

from __future__ import annotations

import pytest

pytest.importorskip("e2b", reason="the extra ags is not installed")
pytest.importorskip("tencentcloud", reason="the extra ags is not installed")

from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from tests.steps.sandbox.ags.lab import AGSLab, forget_settings
from tests.steps.sandbox.conformance import Conformance, run, says
from tests.workflows.command import wait_for

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))


@pytest.mark.long
class TestAGS(Conformance):
    """Long: what carries commands and files is E2B's, for which it runs in make test."""


class TestTokens:
    def test_token_is_renewed_before_expiry(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.faults, "token_life_s", 1.2)
        box = lab.make()
        tokens = lab.server.control.instance_of(box.transport.sandbox_id).tokens
        wait_for(lambda: says(box, "cat hello.txt") == "hello\n" and len(tokens) >= 3)

    def test_refused_token_is_replaced(self, lab: AGSLab) -> None:
        box = lab.make()
        instance = lab.server.control.instance_of(box.transport.sandbox_id)
        instance.machine.granted.clear()
        assert says(box, "cat hello.txt") == "hello\n"
        assert len(instance.tokens) == 2

    def test_account_key_replaces_tokens(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab.server.control, "api_key", "ark_0123")
        monkeypatch.setenv("E2B_API_KEY", "ark_0123")
        forget_settings()
        try:
            box = lab.make()
            assert says(box, "cat hello.txt") == "hello\n"
            instance = lab.server.control.instance_of(box.transport.sandbox_id)
            assert instance.tokens == []
            instance.machine.granted.clear()
            assert says(box, "cat hello.txt") == "hello\n"
            assert len(instance.tokens) == 1
        finally:
            monkeypatch.undo()
            forget_settings()

    def test_e2b_key_is_not_sent_to_ags(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def test_command_survives_drops(self, lab: AGSLab, fault: str) -> None:
        box = lab.make()
        setattr(lab.server.faults, fault, 2)
        result = run(box, "echo once >>count; seq 20000; sleep 0.3; echo done; echo bad >&2; exit 3")
        assert (result.exit_code, result.timed_out, result.stderr) == (3, False, b"bad\n")
        assert result.stdout == "".join(f"{i}\n" for i in range(1, 20001)).encode() + b"done\n"
        assert says(box, "cat count") == "once\n"

    def test_refused_token_breaks_sandbox(self, lab: AGSLab, monkeypatch: pytest.MonkeyPatch) -> None:
        box = lab.make()
        instance = lab.server.control.instance_of(box.transport.sandbox_id)
        monkeypatch.setattr(type(instance.machine), "takes_token", lambda *_: False)
        with pytest.raises(InfraError, match=r"refused the token.*check TENCENTCLOUD_SECRET_ID"):
            run(box, "true")
        with pytest.raises(SandboxBroken):
            run(as_untrusted(box), "true")

    def test_early_end_is_no_outside_failure(self, lab: AGSLab) -> None:
        box = lab.make()
        assert box.outside_failure() is None
        lab.kill(box)
        assert box.outside_failure() is None
        with pytest.raises(InfraError, match="no longer exists"):
            run(box, "true")
