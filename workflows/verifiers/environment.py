"""The environment for the taskset's id: one agent, which needs no runtime of verifiers and no account."""

from __future__ import annotations

import verifiers.v1 as vf

from swe_argo.workflows.verifiers.task import SweTask


class SweEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """``--env.*``: the agent that works on the tasks."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig(), max_turns=50)
    """The model that is trained or evaluated."""


class SweEnv(vf.Env[SweEnvConfig]):  # type: ignore[misc]
    """An environment with one rollout per episode."""

    async def run(self, task: SweTask, agents: vf.Agents) -> None:
        """Let the model work on the task."""
        await agents.agent.run(task)
