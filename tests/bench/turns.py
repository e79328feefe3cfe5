"""What a turn of an agent costs beside its model and its sandbox, and how large the file of a hundred of them is."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from steps.agents import loop, prompts
from steps.agents.journal import Journal
from steps.agents.task import Task
from steps.contracts.data import Instance, Machine
from steps.contracts.run import AgentSpec
from steps.contracts.trajectory import AgentInfo, Metrics, MetricsExtra, StopReason, Usage
from steps.models.reply import Reply, RequestedCall
from steps.sandbox.protocol import ExecResult

TURNS = 100
PROMPT = 400
"""Tokens by which the conversation grows in a turn, beside the answer."""
ANSWER = 300
"""Tokens of an answer."""
THOUGHT = "The failing test compares widths, so I read how they are computed before I change anything. " * 3


class _Model:
    """Answers at once, with token ids and log probabilities."""

    name = "instant"

    def __init__(self) -> None:
        self.usage = Usage()
        self._asked = 0

    def ask(self, messages: list[dict[str, Any]], **_rest: Any) -> Reply:
        self._asked += 1
        shared = (self._asked - 1) * (PROMPT + ANSWER)
        metrics = Metrics(
            prompt_tokens=shared + PROMPT,
            completion_tokens=ANSWER,
            cached_tokens=shared,
            prompt_token_ids=[100_000 + n for n in range(PROMPT)],
            completion_token_ids=[100_000 + n for n in range(ANSWER)],
            logprobs=[-0.123456789 - n / 7919 for n in range(ANSWER)],
            extra=MetricsExtra(finish_reason="tool_calls", request_id="r" * 36, shared_prompt_ids=shared, seconds=1.0),
        )
        self.usage += Usage(calls=1, requests=1, prompt_tokens=shared + PROMPT, completion_tokens=ANSWER)
        last = self._asked == TURNS
        call = RequestedCall(
            f"call-{self._asked}",
            "finish" if last else "execute_bash",
            '{"command": "submit"}' if last else '{"cmd": "grep -rn width src | head -n 40"}',
        )
        function = {"name": call.name, "arguments": call.arguments}
        calls = [{"id": call.id, "type": "function", "function": function}]
        message = {"role": "assistant", "content": THOUGHT, "tool_calls": calls}
        return Reply(THOUGHT, metrics, message, calls=(call,))


class _Sandbox:
    """Performs nothing, and says the same every time: two thousand characters, in lines."""

    machine = Machine(backend="none", image="", image_digest=None, isolation="none", network=False)
    _said = b"src/module.py:12: a line that was found\n" * 50

    def exec(self, command: str, **_rest: Any) -> ExecResult:
        return ExecResult(0, self._said, b"", False, False, 0.01)

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def write(self, path: str, data: bytes) -> None:
        """Nowhere."""


def measure() -> dict[str, float]:
    """Milliseconds of CPU a turn, and megabytes of a trajectory of 100 turns without its observations."""
    spec = AgentSpec(name="r2egym", max_steps=TURNS, max_steps_absolute=TURNS, max_token_limit=10**9)
    issue = "A title\n\nSomething is wrong.\n" * 20
    instance = Instance(
        instance_id="o__r-1", repo="o/r", version="1", base_commit="c" * 40, image="i", problem_statement=issue
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trajectory.json")
        journal = Journal(AgentInfo(name="r2egym", version="0"), "bench", instance.instance_id, 1, file)
        instruction = prompts.source(spec)
        task = Task(instance, spec, _Sandbox(), journal, _Model(), instruction, fn_calling=True)
        began = time.process_time()
        reason = loop.act(task)
        cpu = time.process_time() - began
        if reason is not StopReason.FINISHED or len(journal.turns) < TURNS:
            raise RuntimeError(f"it stopped after {len(journal.turns)} turns: {reason}")
        whole = len(journal.trajectory(reason).to_bytes())
    observed = sum(
        len(result.content or "") for turn in journal.turns if turn.observation for result in turn.observation.results
    )
    return {"turn_cpu_ms": cpu / TURNS * 1000, "trajectory_100_turns_mb": (whole - observed) / 1e6}
