"""verl's own ToolAgentLoop with a sandbox that lives as long as its trajectory, and our verdict as its reward."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.tool_agent_loop import AgentData, AgentState, ToolAgentLoop

from steps.contracts.verdict import GradeRecord
from steps.errors import ConfigError, InfraError, ResourceError
from workflows.resources import retry
from workflows.verl.options import read_options
from workflows.verl.rollout import LiveRollout, LostRolloutError, enlarge, is_suspect, open_rollout, reward_of
from workflows.verl.rollout_task import RolloutTask, read_task

logger = logging.getLogger(__name__)


@register("swe_argo")
class SweAgentLoop(ToolAgentLoop):  # type: ignore[misc]
    """One instance of this class runs one trajectory."""

    def __init__(self, *args: Any, name: str = "swe_argo", **kwargs: Any) -> None:
        ours = {key: kwargs.pop(key) for key in list(kwargs) if key not in _VERLS}
        super().__init__(*args, **kwargs)
        self.agent_name = name
        self.options = read_options(ours)
        self._rollout: LiveRollout | None = None

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """The trajectory and its reward.

        Raises LostRolloutError where the world failed beyond all retries: verl's trainer (``use_v1``) takes what is
        raised as a failed session, which is absent from its group. Raises ConfigError where the request is wrong.
        """
        task = await asyncio.to_thread(self._find_task, kwargs.get("extra_info") or {})
        rule, factor = retry(task.run.spec), 1.0
        for number in range(1, rule.limit + 2):
            try:
                return await self._try(task, factor, sampling_params, kwargs)
            except (InfraError, ResourceError) as error:
                name = task.instance.instance_id
                if number > rule.limit:
                    raise LostRolloutError(f"{name}: the sandbox failed {number} times: {error.reason}") from error
                logger.warning("%s: try %d failed, trying again: %s", name, number, error.reason)
                factor = enlarge(factor, error)
                await asyncio.sleep(rule.pause_s(number))
        raise AssertionError("unreachable")

    def _find_task(self, extra_info: dict[str, Any]) -> RolloutTask:
        store = extra_info.get("store") or self.options.store
        if not store:
            raise ConfigError("name the store that was exported beside the parquet", field="agent_loops.yaml: store")
        return read_task(str(store), extra_info.get("run") or self.options.run, str(extra_info["instance_id"]))

    async def _try(
        self, task: RolloutTask, factor: float, sampling_params: dict[str, Any], kwargs: dict[str, Any]
    ) -> AgentLoopOutput:
        attempt = int(kwargs.get("session_id", 0)) + 1
        async with open_rollout(task, self.options, attempt=attempt, factor=factor) as rollout:
            self._rollout = rollout
            output: AgentLoopOutput = await super().run(sampling_params, **kwargs)
            handed_on = await rollout.take()
        graded = await rollout.grade(handed_on)
        record = GradeRecord.from_bytes(graded.files[GradeRecord.file])
        output.reward_score = reward_of(record, self.options)
        output.extra_fields["reward_extra_info"] = {
            "acc": float(record.resolved),
            "suspect": float(is_suspect(record)),
            "outcome": record.outcome.value,
        }
        return self._whole(output)

    def _whole(self, output: AgentLoopOutput) -> AgentLoopOutput:
        """A response of no token cannot be padded: it is one token that nothing is learnt from."""
        if not output.response_mask:
            token = self.tokenizer.eos_token_id
            output.response_ids = [self.tokenizer.pad_token_id if token is None else token]
            output.response_mask = [0]
            output.response_logprobs = [0.0] if self.rollout_config.calculate_log_probs else None
        return output

    async def _handle_generating_state(
        self, agent_data: AgentData, sampling_params: dict[str, Any], ignore_termination: bool = False
    ) -> AgentState:
        if self._ongoing.is_over:
            return AgentState.TERMINATED
        return await super()._handle_generating_state(agent_data, sampling_params, ignore_termination)

    async def _handle_processing_tools_state(self, agent_data: AgentData) -> AgentState:
        state = await super()._handle_processing_tools_state(agent_data)
        if self._ongoing.failure is not None:  # verl shows the model what a tool raises, and goes on
            raise self._ongoing.failure
        return state

    @property
    def _ongoing(self) -> LiveRollout:
        if self._rollout is None:
            raise ValueError("no rollout is under way")
        return self._rollout


_VERLS = frozenset(
    {
        "trainer_config",
        "server_manager",
        "tokenizer",
        "processor",
        "dataset_cls",
        "data_config",
        "hf_model_type",
        "tools",
    }
)
"""What verl itself makes a loop with; everything else is of agent_loops.yaml."""
