"""Our agents as verl's agent loops: the tokens of their model calls become the response."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.workers.rollout.replica import TokenOutput

from swe_argo.steps.agents.handing_on import HandedOn
from swe_argo.steps.agents.journal import Journal
from swe_argo.steps.agents.solving import AgentEnd
from swe_argo.steps.contracts.agent_spec import agent_of
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.models.reply import Message
from swe_argo.steps.serving.answers import ToolFormat, tool_format_of
from swe_argo.steps.training.samples import Stretch
from swe_argo.steps.training.verl_rows import TOOL_AGENT
from swe_argo.workflows.rollouts.rollout import LiveRollout, LostRolloutError, open_rollout
from swe_argo.workflows.verl.scaffold_work import open_journal, work
from swe_argo.workflows.verl.token_model import Room, TokenModel, Tools
from swe_argo.workflows.verl.tool_loop import RolloutTry, SweAgentLoop

logger = logging.getLogger(__name__)


class ScaffoldAgentLoop(SweAgentLoop):
    """Agent loop of one trajectory, with the agent of the run in the store.

    A trajectory has one output per token sequence of its conversation: nearly always one.
    """

    async def _try(
        self,
        now: RolloutTry,
        sampling_params: dict[str, Any],
        kwargs: dict[str, Any],  # noqa: ARG002 - the agent makes its own prompt from the task
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        task = now.task
        agent = agent_of(task.run.spec.agent)
        if not agent.asks_model or task.run.spec.agent.name == TOOL_AGENT:
            raise ConfigError(f"{agent.name}, of the run in {task.store}, is no scaffold's agent", field="agent_name")
        if agent.is_program and self._tool_format is None:
            raise ConfigError(
                f"{agent.name} calls its tools by the chat template, and calls of {self.tool_parser_name} are not read",
                field="multi_turn.format",
            )
        if task.run.fn_calling and self._tool_format is None:
            raise ConfigError(
                f"{agent.name} calls its tools by the chat template, and calls of {self.tool_parser_name} are not "
                "read: export for it with --use-fn-calling false",
                field="multi_turn.format",
            )
        server = _Server(self, sampling_params)
        model = TokenModel(
            server,
            asyncio.get_running_loop(),
            name=self.config.actor_rollout_ref.model.path,
            decode=self._decode,
            end=self.tokenizer.eos_token_id,
            room=Room(self.prompt_length, self.response_length),
            tool_format=self._tool_format,
        )
        journal = open_journal(task, now.kept.run_id if now.kept else task.run.run_id, now.attempt, model.name)
        async with open_rollout(task, self.options, attempt=now.attempt, factor=now.factor) as rollout:
            ended = await _let_work(rollout, model, journal)
            if not model.usage.calls:  # nothing was sampled: there is no sequence, and no version of weights
                silent = InfraError(FailureClass.MODEL, f"the model gave no answer ({ended.reason.value})")
                raise LostRolloutError(f"{task.instance.instance_id}: {silent.reason}") from silent
            rollout.broken = ended.note
            handed_on = await rollout.take() if ended.patch is None else HandedOn(ended.patch)
            solved = rollout.describe_solve(handed_on, journal.trajectory(ended.reason)) if now.kept else []
        outputs = [self._output(stretch, server, model) for stretch in self._learnt(model.take_stretches())]
        await self._reward(outputs, now, rollout, handed_on, solved)
        return outputs[0] if len(outputs) == 1 else outputs

    def _learnt(self, stretches: list[Stretch]) -> list[Stretch]:
        """Return all stretches if the trainer takes several per trajectory, else that with most sampled tokens."""
        if len(stretches) < 2 or self.config.trainer.get("use_v1", True):
            return stretches
        logger.warning("a trajectory of %d sequences: trainer.use_v1=false learns from one of them", len(stretches))
        return [max(stretches, key=lambda each: sum(each.sampled))]

    def _output(self, stretch: Stretch, server: _Server, model: TokenModel) -> AgentLoopOutput:
        start = min(stretch.calls[0].start, self.prompt_length)
        seconds = {"generate_sequences": model.usage.seconds, "num_preempted": server.preempted}
        return self._whole(
            AgentLoopOutput(
                prompt_ids=stretch.tokens[:start],
                response_ids=stretch.tokens[start:],
                response_mask=[int(each) for each in stretch.sampled[start:]],
                response_logprobs=stretch.logprobs[start:] if server.has_logprobs else None,
                num_turns=2 * len(stretch.calls) + 1,
                metrics=AgentLoopMetrics(**seconds),
                # verl's own loops set these: all outputs of a batch need the same columns.
                extra_fields={**server.extra_fields, "turn_scores": [], "tool_rewards": []},
            )
        )

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    @property
    def _tool_format(self) -> ToolFormat | None:
        """The format of tool calls in the chat template, if the agent uses it for its calls."""
        name = self.tool_parser_name
        return name if name in ("hermes", "qwen3_coder") else tool_format_of(self.tokenizer.chat_template or "")


class _Server:
    """verl's server and chat template as a ``TokenSource``; also collects the other fields of its answers."""

    def __init__(self, loop: ScaffoldAgentLoop, sampling_params: dict[str, Any]) -> None:
        self._loop, self._params, self._request = loop, sampling_params, uuid4().hex
        self.extra_fields: dict[str, Any] = {}
        self.preempted = -1
        self.has_logprobs = False

    async def render(self, messages: list[Message], tools: Tools) -> list[int]:
        builder = self._loop.continuous_token_builder
        render = partial(builder.build_initial_tokens, messages, tools=tools)
        rendered: list[int] = await self._loop.loop.run_in_executor(None, render)
        return rendered

    async def extend(self, tokens: list[int], messages: list[Message], known: int, tools: Tools) -> list[int]:
        merged, _, _ = await self._loop.ct_merge_context_msg(messages[:known], messages, tokens, [], tools=tools)
        return list(merged.token_ids)

    async def sample(self, prompt: list[int], max_tokens: int) -> TokenOutput:
        params = {**self._params, "max_tokens": max_tokens}
        output = await self._loop.server_manager.generate(
            request_id=self._request, prompt_ids=prompt, sampling_params=params
        )
        self.has_logprobs = bool(output.log_probs) or self.has_logprobs
        if output.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + output.num_preempted
        newest = output.extra_fields.get("max_global_steps")
        self.extra_fields = self.extra_fields or dict(output.extra_fields)
        if newest is not None:
            self.extra_fields["max_global_steps"] = newest
        return output


async def _let_work(rollout: LiveRollout, model: TokenModel, journal: Journal) -> AgentEnd:
    """Run the agent in a thread of its own; after a cancellation the end of the sandbox ends the agent, too."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="agent")
    try:
        return await asyncio.get_running_loop().run_in_executor(
            thread, work, rollout.task, rollout.machine.box, model, journal
        )
    finally:
        model.close()
        thread.shutdown(wait=False)
