"""Assignment of an agent program's calls, in order of their answers, to separate conversations in the journal.

A program does not say which conversation a call belongs to; it is derived from the repeated messages. A call that
repeats a conversation with its last answer continues it; a call with another beginning and other tools starts a
conversation of a sub-agent or a helper.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.contracts.trajectory import Metrics, Result, ToolCall
from swe_argo.steps.models.images import text_of
from swe_argo.steps.models.json_depth import is_deeper
from swe_argo.steps.models.program_requests import ModelCall
from swe_argo.steps.models.reply import Message, Reply
from swe_argo.steps.models.token_ids import SharedIds

Key = tuple[str, str, tuple[str, ...], str]
"""Fields of a message that stay the same when it is sent again: role, text, ids of its calls, id of the call it
answers."""


_BILLING = "x-anthropic-billing-header:"


@dataclass
class _Conversation:
    journal: Journal
    system: str
    """The stable part of the system message."""
    tools: tuple[str, ...]
    rank: tuple[bool, bool]
    """Rank for choosing the main conversation: it has tools, and contains the instruction."""
    known: list[Key] = field(default_factory=list)
    """Keys of all messages so far, the last answer included."""
    pending: set[str] = field(default_factory=set)
    """Ids of the calls of the last answer."""
    answered: Key | None = None
    """Key of the last answer."""
    ids: SharedIds = field(default_factory=SharedIds)

    def new_from(self, keys: list[Key], system: str) -> int | None:
        """Return the index of the first new message if the messages continue this conversation, else None."""
        if keys[: len(self.known)] == self.known:
            return len(self.known)
        if self.answered is None or (_lasting(system) != self.system and not self.answered[2]):
            return None
        # Agents change older messages: they shorten results and remove reminders.
        places = [place for place, key in enumerate(keys) if _same_answer(key, self.answered)]
        return places[-1] + 1 if places else None


class Conversations:
    """Conversations of an attempt. The journal's own is the first of the highest rank; others are side ones."""

    def __init__(self, journal: Journal, instruction: str, model: str) -> None:
        """Start without calls. ``model``: the run's model, by its name at the endpoint."""
        self._journal, self._model, self._name = journal, model, journal.agent.model_name
        self._instruction_mark = _mark_of(instruction)
        self._all: list[_Conversation] = []
        """Ordered by the newest call, the latest last."""
        self._main: _Conversation | None = None

    def add(self, call: ModelCall) -> list[Message]:
        """Record a call. Return its new messages."""
        keys = [_key(message) for message in call.messages]
        conversation, start = self._find(call, keys)
        new = call.messages[start:]
        self._hear(conversation, new)
        metrics = conversation.ids.add_token_ids(call.metrics, call.messages)
        conversation.known, conversation.pending, conversation.answered = keys, set(), None
        if call.reply is None:
            if call.metrics != Metrics():
                conversation.journal.add_agent_turn("", [], metrics=metrics, ended=call.ended)
        else:
            self._say(conversation, call.reply, metrics)
        self._all.remove(conversation)
        self._all.append(conversation)
        return new

    def _find(self, call: ModelCall, keys: list[Key]) -> tuple[_Conversation, int]:
        """Return the call's conversation, and the index of its first new message."""
        found = [(start, each) for each in self._all if (start := each.new_from(keys, call.system)) is not None]
        if found:
            start, conversation = max(found, key=lambda pair: (pair[0], self._all.index(pair[1])))
            return conversation, start
        main = self._main
        if (
            main
            and all(main.rank)
            and not main.pending
            and (main.system, main.tools) == (_lasting(call.system), _names(call.tools))
        ):
            known = set(main.known)  # the agent shortened it, so that it begins with a summary
            return main, next((place for place, key in enumerate(keys) if key not in known), len(keys))
        return self._begin(call), 0

    def _begin(self, call: ModelCall) -> _Conversation:
        tools = _names(call.tools)
        said = (text_of(each.get("content")) for each in call.messages if each["role"] == "user")
        rank = (bool(tools), any(self._instruction_mark in text for text in said))
        if self._main is not None and rank > self._main.rank:
            self._journal.set_aside()
            self._main.journal, self._main = self._journal.beside[-1], None
        agent = self._journal.agent.model_copy(update={"tool_definitions": call.tools or None})
        agent = agent.model_copy(update={"model_name": self._name if call.model == self._model else call.model})
        journal = self._journal
        if self._main is None:
            journal.agent = agent
        else:
            journal = self._journal.open_beside(agent)
        conversation = _Conversation(journal, _lasting(call.system), tools, rank)
        self._all.append(conversation)
        self._main = self._main or conversation
        if call.system:
            journal.add_message("system", call.system)
        return conversation

    def _hear(self, conversation: _Conversation, messages: list[Message]) -> None:
        """Record new messages: results complete the turn of their calls, other messages follow it."""
        results: list[Result] = []
        said: list[Message] = []
        for message in messages:
            answers = str(message.get("tool_call_id") or "")
            if message["role"] == "tool" and answers in conversation.pending:
                results.append(Result(source_call_id=answers, content=text_of(message.get("content"))))
                continue
            if message["role"] == "assistant":  # a turn from before a fork, not produced by this model call
                self._write_down(conversation, results, said)
                results, said = [], []
                conversation.pending = {str(call.get("id")) for call in _functions(message)}
            said.append(message)
        self._write_down(conversation, results, said)

    def _write_down(self, conversation: _Conversation, results: list[Result], said: list[Message]) -> None:
        """Record results and messages. Results belong to ``said``'s leading assistant turn, else to the last turn."""
        journal = conversation.journal
        if said and said[0]["role"] == "assistant":
            calls = [_tool_call(str(each.get("id")), each["function"]) for each in _functions(said[0])]
            journal.add_agent_turn(text_of(said[0].get("content")), calls)
            said = said[1:]
        if results:
            journal.add_observations(results)
        for message in said:
            text = text_of(message.get("content"))
            journal.add_message("system" if message["role"] in ("system", "developer") else "user", text)

    def _say(self, conversation: _Conversation, reply: Reply, metrics: Metrics) -> None:
        calls = [
            _tool_call(call.id or f"call-{place}", {"name": call.name, "arguments": call.arguments})
            for place, call in enumerate(reply.calls, 1)
        ]
        conversation.journal.add_agent_turn(reply.text, calls, reasoning=reply.reasoning, metrics=metrics)
        conversation.answered = _key(reply.message)
        conversation.known.append(conversation.answered)
        conversation.pending = {call.tool_call_id for call in calls}


def _mark_of(instruction: str) -> str:
    """Return an instruction's identifying line: its longest one without a path, as paths differ on shared hosts."""
    return (
        max((line.strip() for line in instruction.splitlines() if "/" not in line), key=len, default="") or instruction
    )


def _lasting(system: str) -> str:
    """Return a system message's stable part: Claude Code's first line has a hash that changes with summaries."""
    return (
        "\n".join(line for line in system.splitlines() if not line.startswith(_BILLING))
        if _BILLING in system
        else system
    )


def _functions(message: Message) -> list[dict[str, Any]]:
    return [call for call in message.get("tool_calls") or [] if call.get("function")]


def _same_answer(key: Key, answer: Key) -> bool:
    return key[0] == "assistant" and (key[2] == answer[2] if answer[2] else key == answer)


def _key(message: Message) -> Key:
    calls = tuple(str(call.get("id")) for call in message.get("tool_calls") or [])
    return message["role"], text_of(message.get("content")).strip(), calls, str(message.get("tool_call_id") or "")


def _names(tools: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(str((tool.get("function") or tool).get("name", "")) for tool in tools))


def _tool_call(call_id: str, function: dict[str, Any]) -> ToolCall:
    """Return a call to record; arguments that the record cannot hold are stored beside it as text."""
    written, extra = function.get("arguments") or "{}", None
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_deeper(arguments):
        arguments, extra = {}, {"arguments": written}
    return ToolCall(tool_call_id=call_id, function_name=str(function.get("name")), arguments=arguments, extra=extra)
