"""Recording of mini-swe-agent's turns in the recorder."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.agents.mini_swe_agent.commands import Output
from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.contracts.trajectory import Result, ResultExtra, ToolCall
from swe_argo.steps.models.reply import Reply

TOOL = "bash"
_MAX_CHARACTERS = 10_000
"""Limit for output that no template shortens, which is that of the submitting command."""

Action = dict[str, Any]
"""``command``, and with function calling ``tool_call_id``."""


class Turns:
    """Recorder of answers, when received, and of their commands' results, when shown to the agent."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._ids: list[str] = []
        self._outputs: list[Output] = []

    def add_answer(self, reply: Reply, actions: list[Action]) -> None:
        """Record an answer with commands."""
        number = len(self.recorder.turns) + 1
        self._ids = [str(action.get("tool_call_id") or f"call-{number}-{n}") for n, action in enumerate(actions, 1)]
        calls = [
            ToolCall(tool_call_id=name, function_name=TOOL, arguments={"command": action["command"]})
            for name, action in zip(self._ids, actions, strict=True)
        ]
        self.recorder.add_agent_turn(reply.text, calls, reasoning=reply.reasoning, metrics=reply.metrics)

    def add_malformed(self, reply: Reply, problem: str, correction: str) -> None:
        """Record an answer without a valid command; its calls are kept, but not executed."""
        calls = [
            ToolCall(tool_call_id=call.id, function_name=call.name, arguments={}, extra={"arguments": call.arguments})
            for call in reply.calls
        ]
        self.recorder.add_agent_turn(
            reply.text, calls, reasoning=reply.reasoning, metrics=reply.metrics, malformed=problem
        )
        self.recorder.add_message("user", correction)

    def add_result(self, output: Output) -> None:
        """Store the result of a command of the last answer."""
        self._outputs.append(output)

    def add_observations(self, contents: list[str]) -> list[str]:
        """Record the results shown to the agent. Return the texts to show: a resumed agent gets the recorded ones."""
        outputs, self._outputs = self._outputs, []
        results = [
            Result(source_call_id=name, content=_plain(content), extra=_extra(output, content))
            for name, output, content in zip(self._ids, outputs, contents, strict=False)
        ]
        recorded = self.recorder.add_observations(results)
        texts = [
            # Recorded texts have no lone surrogates; a text that is otherwise unchanged is shown as it was.
            content if result.content == original.content else result.content or ""
            for result, original, content in zip(recorded, results, contents, strict=False)
        ]
        return [*texts, *contents[len(texts) :]]

    def close(self) -> None:
        """Record results that will not be shown, because the agent submitted or the machine failed."""
        if self._outputs:
            self.add_observations([_shortened(output["output"]) for output in self._outputs])


def _extra(output: Output, content: str) -> ResultExtra:
    """Return the values to record with a result. ``content``: the text as shown."""
    extra = output["extra"]
    return ResultExtra(
        exit_code=extra["exit_code"],
        timed_out=extra["timed_out"],
        seconds=extra["seconds"],
        cut=output["output"] not in content,
    )


def _shortened(text: str) -> str:
    """Return the text; a long one loses its middle."""
    return (
        text
        if len(text) <= _MAX_CHARACTERS
        else f"{text[: _MAX_CHARACTERS // 2]}\n[...]\n{text[-_MAX_CHARACTERS // 2 :]}"
    )


def _plain(text: str) -> str:
    """Return the text with lone surrogates replaced, which JSON files cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
