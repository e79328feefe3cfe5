"""What an agent does, turn by turn: kept in memory for the trajectory, and in a file that is whole after every turn."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from steps.contracts.trajectory import (
    AgentInfo,
    FinalMetrics,
    Metrics,
    Observation,
    Result,
    StopReason,
    ToolCall,
    Trajectory,
    TrajectoryExtra,
    Turn,
    Usage,
)


def timestamp_now() -> str:
    """This moment, ISO 8601 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Journal:
    """The turns of one attempt. ``file``, where given, always holds a whole trajectory that ends in ``interrupted``.

    ``earlier`` are the attempts before it in the same solve: they stand in the file with it. Turns before the last
    are not serialized again: their bytes are copied.
    """

    def __init__(
        self,
        agent: AgentInfo,
        run: str,
        instance_id: str,
        attempt: int,
        file: Path | None = None,
        *,
        earlier: list[Trajectory] | None = None,
        watch: Callable[[Turn, int], None] | None = None,
    ) -> None:
        """``watch`` is called with each turn of the agent, when it is in the file, and its number among these."""
        self.agent = agent
        self.turns: list[Turn] = []
        self.usage = Usage()
        """Of the model so far; whoever asks the model keeps it up to date."""
        self.note = ""
        """What there is to say about the whole: how the endpoint put it that the conversation is over, and the like."""
        self.started_at = timestamp_now()
        self._began = time.monotonic()
        self._names = (run, instance_id, attempt)
        self._earlier = earlier or []
        self._file = file
        self._watch = watch
        self._agent_turns = 0
        self._last = self._end = 0  # where the last turn lies in the file

    def add_message(self, source: Literal["system", "user"], message: str, **extra: Any) -> None:
        """Add what the system or the user said."""
        self.add(
            Turn(step_id=self._next, timestamp=timestamp_now(), source=source, message=message, extra=extra or None)
        )

    def add_agent_turn(
        self,
        message: str,
        calls: list[ToolCall],
        results: list[Result] | None = None,
        *,
        reasoning: str = "",
        metrics: Metrics | None = None,
        **extra: Any,
    ) -> None:
        """Add an agent's turn. Without ``metrics`` no model was asked for it."""
        self.add(
            Turn(
                step_id=self._next,
                timestamp=timestamp_now(),
                source="agent",
                model_name=None if metrics is None else self.agent.model_name,
                message=message,
                reasoning_content=reasoning or None,
                tool_calls=calls or None,
                observation=Observation(results=results) if results else None,
                metrics=metrics,
                llm_call_count=0 if metrics is None else 1,
                extra=extra or None,
            )
        )

    def add_observations(self, results: list[Result]) -> None:
        """Complete the last turn with what came of its calls."""
        self.turns[-1] = self.turns[-1].model_copy(update={"observation": Observation(results=results)})
        self._write(again=True)

    def add(self, turn: Turn) -> None:
        """Add a turn."""
        self.turns.append(turn)
        self._write(again=False)
        if turn.source == "agent":
            self._agent_turns += 1
            if self._watch is not None:
                self._watch(turn, self._agent_turns)

    def set_usage(self, usage: Usage) -> None:
        """Set what the model took so far, and write it: after a request that failed no turn may follow to carry it."""
        if usage != self.usage or self.note:
            self.usage = usage
            if self.turns:
                self._write(again=True)

    @property
    def _next(self) -> int:
        return len(self.turns) + 1

    def trajectory(self, reason: StopReason, seconds: float | None = None) -> Trajectory:
        """Everything so far. ``seconds``: the agent's own, by default the time since it began."""
        return embed_trajectories(self.alone(reason, seconds), self._earlier)

    def alone(self, reason: StopReason, seconds: float | None = None) -> Trajectory:
        """This attempt without the earlier ones."""
        return self._around(reason, seconds).model_copy(update={"steps": self.turns or [_NOTHING]})

    def _around(self, reason: StopReason, seconds: float | None = None) -> Trajectory:
        """All but the turns."""
        run, instance_id, attempt = self._names
        return Trajectory(
            session_id=run,
            trajectory_id=f"{run}/{instance_id}/{attempt}",
            agent=self.agent,
            steps=[_NOTHING],
            notes=self.note or None,
            final_metrics=_final(self.usage, len(self.turns)),
            extra=TrajectoryExtra(
                instance_id=instance_id,
                attempt=attempt,
                stop_reason=reason,
                usage=self.usage,
                started_at=self.started_at,
                seconds=round(time.monotonic() - self._began if seconds is None else seconds, 3),
            ),
        )

    def _write(self, *, again: bool) -> None:
        """Write the last turn and all that follows it over the end of the file.

        Over the end of a copy, which then takes the file's name: a SIGKILL can come between any two pages of a write,
        and what it leaves is valid JSON still. Copying a megabyte takes half a millisecond.
        """
        if self._file is None:
            return
        turn = _dump(self.turns[-1].model_dump(mode="json", exclude_none=True))
        around = _summed(self._around(StopReason.INTERRUPTED), self._earlier)
        late = around.model_dump(mode="json", exclude_none=True, include=_LATE)
        first = len(self.turns) == 1 and not again
        place = 0 if first else self._last if again else self._end
        before = self._before() if first else b"" if again else b","
        part = self._file.with_name(f".{self._file.name}.part")
        if first:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.touch()
        else:
            shutil.copyfile(self._file, part)
        with part.open("r+b") as file:
            file.seek(place)
            file.write(before + turn + b"]," + _dump(late)[1:] + b"\n")
            file.truncate()
        part.replace(self._file)
        self._last = place + len(before)
        self._end = self._last + len(turn)

    def _before(self) -> bytes:
        """What stands before the turns in the file."""
        whole = embed_trajectories(self._around(StopReason.INTERRUPTED), self._earlier)
        early = whole.model_dump(mode="json", exclude_none=True, exclude={*_LATE, "steps"})
        return _dump(early)[:-1] + b',"steps":['


def embed_trajectories(trajectory: Trajectory, others: list[Trajectory]) -> Trajectory:
    """The trajectory with others of the same solve inside it, its sums those of all."""
    if not others:
        return trajectory
    return _summed(trajectory, others).model_copy(update={"subagent_trajectories": others})


def _summed(trajectory: Trajectory, others: list[Trajectory]) -> Trajectory:
    usage = sum((other.extra.usage for other in others), trajectory.extra.usage)
    own = trajectory.final_metrics.total_steps if trajectory.final_metrics else None
    steps = (own or 0) + sum(len(other.steps) for other in others)
    extra = trajectory.extra.model_copy(update={"usage": usage})
    return trajectory.model_copy(update={"final_metrics": _final(usage, steps), "extra": extra})


def _final(usage: Usage, steps: int) -> FinalMetrics:
    return FinalMetrics(
        total_prompt_tokens=usage.prompt_tokens,
        total_completion_tokens=usage.completion_tokens,
        total_cached_tokens=usage.cached_tokens,
        total_cost_usd=usage.cost_usd,
        total_steps=steps,
    )


_LATE = {"notes", "final_metrics", "extra"}
"""The fields that change from turn to turn; they stand behind the turns."""
_NOTHING = Turn(step_id=1, source="user", message="")


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
