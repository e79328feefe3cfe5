"""A single model call of an agent, recorded and counted against the limits whatever its result."""

from __future__ import annotations

from swe_argo.steps.agents.limits import Limits
from swe_argo.steps.agents.task import Task
from swe_argo.steps.contracts.trajectory import StopReason
from swe_argo.steps.models.reply import Message, NoReplyError, Reply, ToolDefinition


def ask(
    task: Task,
    limits: Limits,
    messages: list[Message],
    tools: list[ToolDefinition] | None,
    stop: list[str] | None = None,
) -> Reply | StopReason:
    """Return the answer, or the stop reason if there is none. Raises as ``Model.ask``, except NoReplyError."""
    model, recorder = task.model, task.recorder
    try:
        reply = model.ask(messages, tools=tools, temperature=task.temperature, timeout_s=limits.left_s, stop=stop)
    except NoReplyError as error:
        recorder.note = error.detail
        recorder.set_usage(model.usage)
        if error.metrics is not None:
            recorder.add_agent_turn("", [], metrics=error.metrics)
        limits.lost(model.lost_s)
        # The call's timeout was the agent's remaining time.
        late = error.reason is StopReason.CALL_TIMEOUT and limits.is_out_of_time
        return StopReason.TIMEOUT if late else error.reason
    except BaseException:
        recorder.set_usage(model.usage)  # count a failed call's usage however the process ends
        raise
    recorder.usage = model.usage
    limits.lost(model.lost_s)
    return reply
