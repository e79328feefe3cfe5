"""Recording of mini-swe-agent's turns in the journal."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.mini_swe_agent.commands import Output
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, ToolCall
from swe_argo.steps.models.reply import Reply

TOOL = "bash"
_KEPT = 10_000
"""Characters kept of output that no template shortened: that of the submitting command."""

Action = dict[str, Any]
"""``command``, and with function calling ``tool_call_id``."""


class Turns:
    """Recorder of answers, when received, and of their commands' results, when shown to the agent."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._ids: list[str] = []
        self._done: list[Output] = []

    def answered(self, reply: Reply, actions: list[Action]) -> None:
        """Record an answer with commands."""
        number = len(self.journal.turns) + 1
        self._ids = [str(action.get("tool_call_id") or f"call-{number}-{n}") for n, action in enumerate(actions, 1)]
        calls = [
            ToolCall(tool_call_id=name, function_name=TOOL, arguments={"command": action["command"]})
            for name, action in zip(self._ids, actions, strict=True)
        ]
        self.journal.add_agent_turn(reply.text, calls, reasoning=reply.reasoning, metrics=reply.metrics)

    def malformed(self, reply: Reply, problem: str, correction: str) -> None:
        """Record an answer without a valid command; its calls are kept, but not executed."""
        calls = [
            ToolCall(tool_call_id=call.id, function_name=call.name, arguments={}, extra={"arguments": call.arguments})
            for call in reply.calls
        ]
        self.journal.add_agent_turn(
            reply.text, calls, reasoning=reply.reasoning, metrics=reply.metrics, malformed=problem
        )
        self.journal.add_message("user", correction)

    def ran(self, output: Output) -> None:
        """Store the result of a command of the last answer."""
        self._done.append(output)

    def observed(self, contents: list[str]) -> list[str]:
        """Record the results shown to the agent. Return the texts to show."""
        outputs, self._done = self._done, []
        results = [
            Result(source_call_id=name, content=_plain(content), extra=_extra(output, content))
            for name, output, content in zip(self._ids, outputs, contents, strict=False)
        ]
        shown = self.journal.add_observations(results)
        seen = [
            content if result.content == made.content else result.content or ""
            for result, made, content in zip(shown, results, contents, strict=False)
        ]
        return [*seen, *contents[len(seen) :]]

    def close(self) -> None:
        """Record results that will not be shown, because the agent submitted or the machine failed."""
        if self._done:
            self.observed([_shortened(output["output"]) for output in self._done])


def _extra(output: Output, content: str) -> ResultExtra:
    extra = output["extra"]
    return ResultExtra(
        exit_code=extra["exit_code"],
        timed_out=extra["timed_out"],
        seconds=extra["seconds"],
        cut=output["output"] not in content,
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _KEPT else f"{text[: _KEPT // 2]}\n[...]\n{text[-_KEPT // 2 :]}"


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
