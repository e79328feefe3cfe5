"""RunFile, Instance, (Recording) -> Trajectory, Patch, (Layer), SolveRecord: an agent works in its own sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from steps.agents.solving import Solving
from steps.contracts.agent_spec import agent_of
from steps.contracts.agents import AgentKind
from steps.contracts.chain import SOLVE
from steps.contracts.data import Instance, RunFile
from steps.contracts.record import Raw, Record
from steps.contracts.trajectory import Recording, StopReason
from steps.entry import Inputs, run_step
from steps.errors import ConfigError, StepError
from steps.sandbox.unit_sandbox import Context


def solve(context: Context, inputs: Inputs) -> Iterable[Record | Raw]:
    """Hide what HEAD does not reach, let the agent work, take its patch; in iterative mode again, and keep the best.

    Raises ConfigError, InfraError, ResourceError; one that comes after the agent began leaves what it had done.
    """
    run, instance, recording = inputs[RunFile], inputs[Instance], inputs.get(Recording)
    agent = agent_of(run.spec.agent)
    if not agent.solves:
        raise ConfigError(f"{agent.name!r} does not solve: its patch is there before grade", field="agent.name")
    if agent.kind is AgentKind.REPLAY and recording is None:
        raise ConfigError(f"there is no recording of {instance.instance_id}", field="agent.trajectories")
    solving = Solving(context, run, instance, recording)
    try:
        return list(solving.outputs())
    except StepError as error:
        if solving.journal is not None:
            error.leaves = (*error.leaves, solving.journal.trajectory(StopReason.INTERRUPTED))
        raise


if __name__ == "__main__":
    run_step(SOLVE, solve)
