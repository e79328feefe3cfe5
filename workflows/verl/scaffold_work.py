"""Execution of an agent in a rollout's sandbox, with the trainer's model."""

from __future__ import annotations

from swe_argo.steps.agents.recorder import Recorder
from swe_argo.steps.agents.runner import act
from swe_argo.steps.agents.solving import AgentEnd
from swe_argo.steps.agents.task import NoModel, Task
from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.trajectory import AgentExtra, AgentInfo, StopReason
from swe_argo.steps.contracts.wire_protocol import WireProtocol
from swe_argo.steps.models.forwarding import Forwarder
from swe_argo.steps.models.model_sender import ModelSender
from swe_argo.steps.models.reply import Model
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.untrusted import SandboxBroken
from swe_argo.workflows.rollouts.task import RolloutTask


def open_recorder(task: RolloutTask, run_id: str, attempt: int, model: str) -> Recorder:
    """Return the recorder of one try. ``run_id``: the run in which it is stored, if it is."""
    run = task.run
    info = AgentInfo(
        name=agent_of(run.spec.agent).name,
        version=run.versions.get("swe-argo", ""),
        model_name=model,
        extra=AgentExtra(format=run.call_format),
    )
    return Recorder(info, run_id, task.instance.instance_id, attempt)


def work(task: RolloutTask, box: Sandbox, model: Model, recorder: Recorder) -> AgentEnd:
    """Run the agent of the task's run until it ends or breaks its machine. Blocks; thread-safe.

    Raises the errors of agents (InfraError, ResourceError, ConfigError) and those of ``model``.
    """
    run = task.run
    agent = agent_of(run.spec.agent)
    is_program = agent.is_program
    agent_task = Task(
        instance=task.instance,
        spec=run.spec.agent,
        box=box,
        recorder=recorder,
        model=NoModel() if is_program else model,
        instruction=run.instruction,
        scaffold_wording=run.words,
        fn_calling=bool(run.fn_calling),
        program=run.program,
        forwarder=Forwarder(run.spec, ModelSender(model), [WireProtocol.CHAT]) if is_program else None,
    )
    try:
        return AgentEnd(act(agent, agent_task), agent_task.patch)
    except SandboxBroken as error:
        return AgentEnd(StopReason.SANDBOX_BROKEN, note=error.reason)
