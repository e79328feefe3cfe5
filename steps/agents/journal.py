"""What an agent does, turn by turn: kept in memory for the trajectory, and in a file that is whole after every turn."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
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


def now() -> str:
    """This moment, ISO 8601 with milliseconds, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Journal:
    """The turns of one attempt. ``file``, where given, always holds a whole trajectory that ends in ``interrupted``."""

    def __init__(self, agent: AgentInfo, run: str, instance_id: str, attempt: int, file: Path | None = None) -> None:
        self.agent = agent
        self.turns: list[Turn] = []
        self.usage = Usage()
        """Of the model so far; whoever asks the model keeps it up to date."""
        self.started_at = now()
        self._began = time.monotonic()
        self._names = (run, instance_id, attempt)
        self._file = file
        self._end = 0
        self._last = 0

    def said(self, source: Literal["system", "user"], message: str, **extra: Any) -> None:
        """Add what the system or the user said."""
        self.add(Turn(step_id=self._next, timestamp=now(), source=source, message=message, extra=extra or None))

    def did(
        self,
        message: str,
        calls: list[ToolCall],
        results: list[Result] | None = None,
        *,
        reasoning: str = "",
        metrics: Metrics | None = None,
    ) -> None:
        """Add an agent's turn. Without ``metrics`` no model was asked for it."""
        self.add(
            Turn(
                step_id=self._next,
                timestamp=now(),
                source="agent",
                message=message,
                reasoning_content=reasoning or None,
                tool_calls=calls or None,
                observation=Observation(results=results) if results else None,
                metrics=metrics,
                llm_call_count=0 if metrics is None else 1,
            )
        )

    def observed(self, results: list[Result]) -> None:
        """Complete the last turn with what came of its calls."""
        self.turns[-1] = self.turns[-1].model_copy(update={"observation": Observation(results=results)})
        self._write(again=True)

    def add(self, turn: Turn) -> None:
        """Add a turn."""
        self.turns.append(turn)
        self._write(again=False)

    @property
    def _next(self) -> int:
        return len(self.turns) + 1

    def trajectory(self, reason: StopReason, seconds: float | None = None) -> Trajectory:
        """Everything so far. ``seconds``: the agent's own, by default the time since it began."""
        run, instance_id, attempt = self._names
        usage = self.usage
        return Trajectory(
            session_id=run,
            trajectory_id=f"{run}/{instance_id}/{attempt}",
            agent=self.agent,
            steps=self.turns or [Turn(step_id=1, source="user", message="")],
            final_metrics=FinalMetrics(
                total_prompt_tokens=usage.prompt_tokens,
                total_completion_tokens=usage.completion_tokens,
                total_cached_tokens=usage.cached_tokens,
                total_cost_usd=usage.cost_usd,
                total_steps=len(self.turns),
            ),
            extra=TrajectoryExtra(
                instance_id=instance_id,
                attempt=attempt,
                stop_reason=reason,
                usage=usage,
                started_at=self.started_at,
                seconds=round(time.monotonic() - self._began if seconds is None else seconds, 3),
            ),
        )

    def _write(self, *, again: bool) -> None:
        """Write the last turn and all that follows it over the end of the file.

        In one call to the system, and longer than what was there: a process that is killed leaves valid JSON.
        """
        if self._file is None:
            return
        turn = _json(self.turns[-1])
        rest = _Frame.of(self.trajectory(StopReason.INTERRUPTED))
        if len(self.turns) == 1 and not again:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_bytes(rest.before + turn + rest.after)
            self._last = len(rest.before)
        else:
            before = b"" if again else b","
            place = self._last if again else self._end
            with self._file.open("r+b") as file:
                os.pwrite(file.fileno(), before + turn + rest.after, place)
            self._last = place + len(before)
        self._end = self._last + len(turn)


@dataclass(frozen=True)
class _Frame:
    """A trajectory's JSON around its turns."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, trajectory: Trajectory) -> _Frame:
        fields = trajectory.model_copy(update={"steps": []}).model_dump(mode="json", exclude_none=True)
        del fields["steps"]
        late = {name: fields.pop(name) for name in ("final_metrics", "extra")}
        return cls(_dump(fields)[:-1] + b',"steps":[', b"]," + _dump(late)[1:] + b"\n")


def _json(turn: Turn) -> bytes:
    return _dump(turn.model_dump(mode="json", exclude_none=True))


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
