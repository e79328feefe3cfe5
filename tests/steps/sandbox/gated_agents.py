"""What every backend must show of agent programs behind the gate; ``Conformance`` has these tests, too."""

from __future__ import annotations

from steps.agents.gate.events import Ended, Withdrawn
from steps.sandbox.protocol import Sandbox
from tests.steps.agents.gate.agents import drive, open_gate, printed, requests
from tests.steps.agents.gate.toolchain import needs_go


@needs_go
class GatedAgents:
    def test_an_agents_requests_go_out_and_its_answers_in(self, box: Sandbox) -> None:
        command = """
        ask POST '/v1/messages?beta=true' hello
        for n in 1 2 3 4 5; do ask POST /v1/messages "$(printf %${n}0000s)" | wc -c; done
        basename "$PWD"; read -r line || echo nothing to read; (: </dev/tty) 2>/dev/null || echo no terminal
        echo $WORD >&2; ls -A /tmp | grep swe-argo-gate; exit 3
        """
        with open_gate(box, command) as gate:
            events = drive(gate)
            assert gate.poll(1) == []
        first = requests(events)[0]
        assert (first.number, first.method, first.path) == (1, "POST", "/v1/messages?beta=true")
        assert (first.headers["x-word"], first.body) == ("a, b", b"hello")
        assert printed(events) == (
            b"200 <hello>\n10007\n20007\n30007\n40007\n50007\ntestbed\nnothing to read\nno terminal\n"
        )
        assert printed(events, "stderr") == b"it's\n"
        assert events[-1] == Ended(3)

    def test_all_that_an_agent_started_ends_with_it(self, box: Sandbox) -> None:
        beat = "while :; do echo x >>/testbed/beat; sleep 0.05; done"
        begin = (
            f"trap '' TERM; setsid bash -c '(trap \"\" TERM; {beat}) & exit' & until [ -s beat ]; do sleep 0.05; done"
        )
        silence = "wc -c </testbed/beat; sleep 0.4; wc -c </testbed/beat; rm /testbed/beat"
        for ending in ("exit 0", "ask POST /v1/messages begun; sleep 600"):
            with open_gate(box, f"{begin}; {ending}") as gate:
                if ending == "exit 0":
                    assert drive(gate) == [Ended(0)]
                else:
                    assert requests(gate.poll(60))
                    gate.kill()
                    gate.kill()
                    *left, ended = drive(gate)
                    assert ended == Ended(137, killed=True)
                    assert left in ([], [Withdrawn(1)])  # whether its connection closes before the gate has ended
            before, after = box.exec(silence, timeout_s=20).stdout.split()
            assert 0 < int(before) == int(after)
