"""RunFile, Instance, (Recording) -> Trajectory, Patch, SolveRecord: an agent works on one issue in its own sandbox."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from steps.agents import idle, replay
from steps.agents.history import hide
from steps.agents.journal import Journal
from steps.agents.patch import begin, extract
from steps.contracts.chain import SOLVE
from steps.contracts.data import Instance, Patch, RunFile, SolveRecord
from steps.contracts.record import Raw, Record
from steps.contracts.run import SOLVING_AGENTS
from steps.contracts.trajectory import AgentInfo, Recording, StopReason, Trajectory
from steps.entry import Context, Inputs, run_step, sandbox
from steps.errors import ConfigError, StepError
from steps.sandbox.protocol import Sandbox

AROUND_S = 3600.0
"""How much longer than its agent a sandbox may live: hiding the history before, taking the patch after."""


def solve(context: Context, inputs: Inputs) -> Iterable[Record | Raw]:
    """Hide what HEAD does not reach, let the agent work, take its patch.

    Raises ConfigError, InfraError, ResourceError; one that comes after the agent began leaves what it had done.
    """
    run, instance, recording = inputs[RunFile], inputs[Instance], inputs.get(Recording)
    work = _Work(context, run, instance)
    agent = run.spec.agent
    if agent.name not in SOLVING_AGENTS:
        raise ConfigError(f"{agent.name!r} does not solve: its patch is there before grade", field="agent.name")
    if agent.name == "replay" and recording is None:
        raise ConfigError(f"there is no recording of {instance.instance_id}", field="agent.trajectories")
    began = time.monotonic()
    with sandbox(
        context,
        run,
        instance,
        step=SOLVE.name,
        network=run.spec.sandbox.solve_network,
        deadline_s=agent.timeout_s + AROUND_S,
        isolated=agent.name != "idle",
    ) as box:
        work.seconds["create"] = time.monotonic() - began
        try:
            return work.outputs(box, recording)
        except StepError as error:
            if work.began:
                error.leaves = (*error.leaves, work.journal.trajectory(StopReason.INTERRUPTED))
            raise


class _Work:
    """What is known of a solve while it runs."""

    def __init__(self, context: Context, run: RunFile, instance: Instance) -> None:
        self.run, self.instance, self.attempt = run, instance, context.attempt
        self.seconds: dict[str, float] = {}
        self.began = False
        info = AgentInfo(name=run.spec.agent.name, version=run.versions.get("swe-argo", ""), model_name=run.model)
        file = context.leaves / Trajectory.file if context.leaves else None
        self.journal = Journal(info, run.run_id, instance.instance_id, context.attempt, file)

    def outputs(self, box: Sandbox, recording: Recording | None) -> tuple[Trajectory, Patch, SolveRecord]:
        with self._stage("prepare"):
            history = hide(box)
            start = begin(box, history.head)
        self.began = True
        self.journal.said("user", self.instance.problem_statement)
        with self._stage("agent"):
            reason = self._agent(box, recording)
        trajectory = self.journal.trajectory(reason, self.seconds["agent"])
        with self._stage("patch"):
            taken = extract(box, start)
        record = SolveRecord(
            instance_id=self.instance.instance_id,
            attempt=self.attempt,
            agent=self.run.spec.agent.name,
            stop_reason=reason,
            history=history,
            machine=box.machine,
            seconds={stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
            usage=self.journal.usage,
            patch_bytes=len(taken.data),
            patch_note=taken.note,
        )
        return trajectory, Patch(taken.data), record

    def _agent(self, box: Sandbox, recording: Recording | None) -> StopReason:
        if self.run.spec.agent.name == "idle" or recording is None:
            return idle.act()
        return replay.act(recording, box, self.run.spec.agent, self.journal, time.monotonic)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - began


if __name__ == "__main__":
    run_step(SOLVE, solve)
