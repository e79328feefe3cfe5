"""Adapter of our model client to mini-swe-agent's Model, with its parsers and corrections and our limits."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.mini_swe_agent.commands import Output
from swe_argo.steps.agents.mini_swe_agent.library import ACTION_REGEX, Library
from swe_argo.steps.agents.mini_swe_agent.turns import Action, Turns
from swe_argo.steps.agents.model_call import ask
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.models.reply import Message, Reply


class RecordedModel:
    """The library's protocol Model. The end of an attempt is raised as LimitsExceeded with our ``stop_reason``.

    All billed requests count toward the library's cost limit, also malformed answers and failed requests.
    ``model_settings``: the table ``model`` of its configuration.
    """

    def __init__(
        self, library: Library, task: Task, turns: Turns, model_settings: dict[str, Any], limits: Limits
    ) -> None:
        self.config = {**model_settings, "model_name": task.model.name}
        self._library, self._task, self._turns, self._limits = library, task, turns, limits
        self._tools = [library.toolcall.BASH_TOOL] if task.fn_calling else None
        self._spent = task.model.usage.cost_usd or 0.0
        """Cost in USD of all requests up to the last answer."""
        self._blank: list[bool] = []
        """For each malformed answer since the last good one, whether it was empty."""

    @property
    def has_only_empty_answers(self) -> bool:
        """Return whether all malformed answers since the last good one were empty."""
        return all(self._blank)

    def query(self, messages: list[Message], **_: Any) -> Message:
        """Return an answer with its actions.

        Raises LimitsExceeded at a limit or without an answer, FormatError for a malformed one, and as ``Model.ask``.
        """
        if (reason := self._limits.reached(self._task.recorder.usage)) is not None:
            raise self._limit_error(reason)
        request_messages = [{key: value for key, value in message.items() if key != "extra"} for message in messages]
        reply = ask(self._task, self._limits, request_messages, self._tools)
        if isinstance(reply, StopReason):
            raise self._limit_error(reply)
        self._limits.answered(reply.message, reply.metrics)
        total_cost = self._task.model.usage.cost_usd or 0.0
        cost, self._spent = total_cost - self._spent, total_cost
        try:
            actions = self._actions(reply)
        except self._library.exceptions.FormatError as error:
            blank = not reply.text.strip() and not reply.calls
            self._blank.append(blank)
            correction = error.messages[0]
            correction["extra"]["cost"] = cost
            self._turns.add_malformed(reply, "empty" if blank else "format_error", correction["content"])
            self._limits.count_message(correction)
            raise
        self._blank = []
        self._turns.add_answer(reply, actions)
        return {**reply.message, "extra": {"actions": actions, "cost": cost, "timestamp": time.time()}}

    def _limit_error(self, reason: StopReason) -> Exception:
        """Return the library's exception that ends its agent, with our stop reason."""
        status = "TimeExceeded" if reason is StopReason.TIMEOUT else "LimitsExceeded"
        extra = {"exit_status": status, "submission": "", "stop_reason": reason}
        error: Exception = self._library.exceptions.LimitsExceeded({"role": "exit", "content": status, "extra": extra})
        return error

    def _actions(self, reply: Reply) -> list[Action]:
        """Return the commands of an answer, by the library's parsers. Raises its FormatError if it is malformed."""
        words = {
            "format_error_template": self.config["format_error_template"],
            "template_kwargs": {"finish_reason": reply.metrics.extra.finish_reason if reply.metrics.extra else None},
        }
        actions: list[Action]
        if not self._task.fn_calling:
            actions = self._library.text.parse_regex_actions(reply.text, action_regex=ACTION_REGEX, **words)
            return actions
        calls = [
            SimpleNamespace(id=call.id, function=SimpleNamespace(name=call.name, arguments=call.arguments))
            for call in reply.calls
        ]
        actions = self._library.toolcall.parse_toolcall_actions(calls, **words)
        return actions

    def format_message(self, **message: Any) -> Message:
        """Record a message and return it for the conversation."""
        if message["role"] != "exit":
            self._turns.recorder.add_message(message["role"], message["content"])
            self._limits.count_message(message)
        return message

    def format_observation_messages(
        self, message: Message, outputs: list[Output], template_vars: dict[str, Any] | None = None
    ) -> list[Message]:
        """Return the observations of a message's actions, by the library's templates."""
        words = {"observation_template": self.config["observation_template"], "template_vars": template_vars}
        observation_messages: list[Message]
        if self._task.fn_calling:
            actions = message["extra"]["actions"]
            observation_messages = self._library.toolcall.format_toolcall_observation_messages(
                actions=actions, outputs=outputs, **words
            )
        else:
            observation_messages = self._library.text.format_observation_messages(outputs, **words)
        for observation_message in observation_messages:
            del observation_message["extra"]["raw_output"]  # frees memory
        contents = self._turns.add_observations(
            [observation_message["content"] for observation_message in observation_messages]
        )
        for observation_message, content in zip(observation_messages, contents, strict=True):
            observation_message["content"] = content
            self._limits.count_message(observation_message)
        return observation_messages

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the names available in the library's templates."""
        return {**self.config, **kwargs}

    def serialize(self) -> dict[str, Any]:
        """Return nothing: the library's own trajectory is not written."""
        return {}
