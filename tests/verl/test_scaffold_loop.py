"""Our agents as verl's loops."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402

from swe_argo.steps.contracts.data import Patch  # noqa: E402
from swe_argo.steps.contracts.record import key  # noqa: E402
from swe_argo.steps.contracts.run_spec import RunSpec  # noqa: E402
from swe_argo.steps.contracts.solve_record import SolveRecord  # noqa: E402
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory  # noqa: E402
from swe_argo.steps.errors import ConfigError  # noqa: E402
from swe_argo.steps.store import open_store  # noqa: E402
from swe_argo.workflows.rollouts.rollout import LostRolloutError  # noqa: E402
from swe_argo.workflows.verl.dataset import VerlOptions, export_dataset  # noqa: E402
from tests.model_server.answers import Answer, function_text  # noqa: E402
from tests.solutions import answers as solution  # noqa: E402
from tests.verl.loops import Loops, ScriptedServer, play  # noqa: E402
from tests.workflows.command import summary, swe_argo  # noqa: E402

Sandboxes = Callable[[], list[str]]

INSTANCE = "mini__slugkit-2"
END = "<|im_end|>"
SCAFFOLDS = ["r2egym", "openhands", "sweagent", "mini-swe-agent"]


def called(tool: str, thought: str = "", **arguments: str) -> str:
    return f"{function_text(tool, thought, **arguments).text}{END}"


LOOK = called("execute_bash", cmd="ls")


class RecordingServer(ScriptedServer):
    """Records its calls; all its log probabilities differ."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: list[tuple[list[int], TokenOutput]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], **more: Any) -> TokenOutput:
        output = await super().generate(request_id, prompt_ids=prompt_ids, **more)
        output.token_ids = output.token_ids[: more["sampling_params"]["max_tokens"]]
        output.log_probs = [-len(self.calls) - place / 10_000 for place in range(1, len(output.token_ids) + 1)]
        self.calls.append((list(prompt_ids), output))
        return output


class Rollout:
    """A trajectory of a row exported for a scaffold, and its server."""

    def __init__(self, loops: Loops, folder: Path, style: str, answers: Any, split: str = "train", **agent: Any):
        fields = {"select": {"instance_ids": [INSTANCE]}, "agent": {"name": style, "timeout_s": 300, **agent}}
        spec = RunSpec.model_validate({"dataset": "mini", **fields})
        files = export_dataset(spec, VerlOptions(style=style, val_ratio=float(split == "val"), out=folder))
        [self.row] = pq.read_table(files.path / f"{split}.parquet").to_pylist()
        self.loops, self.server = loops, RecordingServer(loops.tokenizer, answers)

    async def run(self) -> AgentLoopOutput | list[AgentLoopOutput]:
        row = {**self.row, "raw_prompt": self.row["prompt"], "tools_kwargs": self.row["extra_info"]["tools_kwargs"]}
        loop = self.loops.make(self.server, name=row["agent_name"], _target_="swe_argo.verl.ScaffoldAgentLoop")
        output: AgentLoopOutput = await loop.run({"logprobs": True}, **row, session_id=0, global_steps=10)
        return output

    @property
    def output(self) -> AgentLoopOutput:
        output = asyncio.run(self.run())
        assert isinstance(output, AgentLoopOutput)
        return output


def texts(style: str, *, fn_calling: bool = False) -> list[str]:
    """Return the answers of a model that solves the instance with a scaffold's tools."""
    return [_text(answer) + END for answer in solution(INSTANCE, style, fn_calling=fn_calling)]


def _text(answer: Answer) -> str:
    called = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in answer.calls]
    return "\n".join([answer.text or "", *(f"<tool_call>\n{item}\n</tool_call>" for item in called)])


def assert_matches_samples(output: AgentLoopOutput, calls: list[tuple[list[int], TokenOutput]]) -> None:
    """Check ids, mask and log probabilities of a sequence against the server's calls."""
    tokens = [*output.prompt_ids, *output.response_ids]
    mask, logprobs = [0] * len(tokens), [0.0] * len(tokens)
    for prompt, sampled in calls:
        end = len(prompt) + len(sampled.token_ids)
        assert tokens[:end] == [*prompt, *sampled.token_ids]
        mask[len(prompt) : end] = [1] * len(sampled.token_ids)
        logprobs[len(prompt) : end] = sampled.log_probs or []
    assert end == len(tokens)
    begin = len(output.prompt_ids)
    assert not any(mask[:begin])
    assert (output.response_mask, output.response_logprobs) == (mask[begin:], logprobs[begin:])


@pytest.mark.parametrize("calls", ["in text", "by the chat template"])
@pytest.mark.parametrize("style", SCAFFOLDS)
def test_response_has_all_sampled_tokens(
    style: str, calls: str, loops: Loops, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    fn_calling = calls != "in text"
    answers = texts(style, fn_calling=fn_calling)
    rollout = Rollout(loops, tmp_path / "out", style, play(*answers), use_fn_calling=str(fn_calling).lower())
    output = rollout.output
    assert output.reward_score == 1.0
    assert len(rollout.server.calls) == len(answers)
    assert_matches_samples(output, rollout.server.calls)
    first = loops.tokenizer.decode(rollout.server.calls[0][0])
    assert all(message["content"].strip() in first for message in rollout.row["prompt"])
    assert ("# Tools" in first) is fn_calling
    assert loops.tokenizer.decode(output.prompt_ids) == first


def test_text_after_a_call_is_cut(loops: Loops, tmp_path: Path, sandboxes: Sandboxes) -> None:
    look, *later_texts = texts("r2egym")
    more = "\nAnd after that I shall look at the tests."
    rollout = Rollout(loops, tmp_path / "out", "r2egym", play(look.removesuffix(END) + more + END, *later_texts))
    output = rollout.output
    assert output.reward_score == 1.0
    (prompt, first), *later_calls = rollout.server.calls
    length = len(first.token_ids) - len(more) - 1  # a token a byte, and the end, which stands there unsampled
    cut = TokenOutput(token_ids=first.token_ids[:length], log_probs=(first.log_probs or [])[:length])
    assert_matches_samples(output, [(prompt, cut), *later_calls])
    assert f"</function>{END}\n<|im_start|>user\n" in loops.tokenizer.decode(later_calls[0][0])


def test_shortening_splits_the_sequence(tmp_path: Path, sandboxes: Sandboxes) -> None:
    loops = Loops(tmp_path / "loops", "data.max_prompt_length=30000", "data.max_response_length=4000")
    looks = [called("execute_bash", f"Look {turn}.", command="ls -la") for turn in range(12)]
    rollout = Rollout(loops, tmp_path / "out", "openhands", play(*looks, *texts("openhands")[-1:]))
    outputs = asyncio.run(rollout.run())
    assert isinstance(outputs, list)
    assert len(outputs) > 1
    assert {output.reward_score for output in outputs} == {0.0}
    remaining = list(rollout.server.calls)
    for output in outputs:
        whole = [*output.prompt_ids, *output.response_ids]
        own = [(prompt, sampled) for prompt, sampled in remaining if whole[: len(prompt)] == prompt]
        assert_matches_samples(output, own)
        remaining = [call for call in remaining if call not in own]
        assert (len(output.prompt_ids) <= 30_000, len(output.response_ids) <= 4000) == (True, True)
    assert not remaining
    assert {frozenset(output.extra_fields) for output in outputs} == {frozenset(outputs[0].extra_fields)}


def test_full_context_is_graded(tmp_path: Path, sandboxes: Sandboxes) -> None:
    loops = Loops(tmp_path / "loops", "data.max_prompt_length=4000", "data.max_response_length=3000")
    rollout = Rollout(loops, tmp_path / "out", "r2egym", play(*[LOOK] * 40))
    output = rollout.output
    assert output.reward_score == 0.0
    assert len(rollout.server.calls[0][0]) > 4000  # what is too long for a prompt is a part of the response
    assert (len(output.prompt_ids), output.response_mask[0]) == (4000, 0)
    assert len(output.response_ids) <= 3000
    assert 1 < len(rollout.server.calls) < 40


def test_validation_stores_trajectory(loops: Loops, tmp_path: Path, sandboxes: Sandboxes) -> None:
    rollout = Rollout(loops, tmp_path / "out", "sweagent", play(*texts("sweagent")), "val")
    output = rollout.output
    run, url = "grpo-val-000010", rollout.row["extra_info"]["store"]
    store = open_store(url)
    trajectory = Trajectory.from_bytes(store.get(key(Trajectory, run, INSTANCE, 1)))
    assert trajectory.agent.name == "sweagent"
    assert trajectory.agent.model_name == loops.config.actor_rollout_ref.model.path
    acted = [turn for turn in trajectory.steps if turn.source == "agent"]
    assert [turn.tool_calls[0].function_name for turn in acted if turn.tool_calls][-2:] == ["submit", "submit"]
    took = [(turn.metrics.prompt_tokens, turn.metrics.completion_tokens) for turn in acted if turn.metrics]
    assert took == [(len(prompt), len(sampled.token_ids)) for prompt, sampled in rollout.server.calls]
    record = SolveRecord.from_bytes(store.get(key(SolveRecord, run, INSTANCE, 1)))
    assert (record.stop_reason, record.usage.completion_tokens) == (StopReason.FINISHED, sum(output.response_mask))
    assert record.patch_bytes == len(Patch.from_bytes(store.get(key(Patch, run, INSTANCE, 1))).data) > 0
    swe_argo("report", run, "--store", url)
    figures = summary(url, run)
    assert (figures.headline.resolved, figures.headline.total, figures.complete) == (1, 1, True)


@pytest.mark.parametrize("where", ["the model", "a command"])
def test_cancelled_rollout_cleans_up(loops: Loops, tmp_path: Path, sandboxes: Sandboxes, where: str) -> None:
    turns: list[int] = []
    command = called("execute_bash", cmd="touch /testbed/began; sleep 600")

    async def never() -> str:
        await asyncio.sleep(600)
        return ""

    def answers(_prompt: str, turn: int) -> Any:
        turns.append(turn)
        return never() if where == "the model" else command

    def is_started() -> bool:
        if where == "the model":
            return bool(turns)
        return any(Path(tempfile.gettempdir(), name, "testbed", "began").exists() for name in sandboxes())

    async def script() -> None:
        working = asyncio.create_task(Rollout(loops, tmp_path / "out", "r2egym", answers).run())
        while not is_started():
            assert not working.done()
            await asyncio.sleep(0.01)
        assert len(sandboxes()) == 1
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert not sandboxes()

    asyncio.run(script())
    for thread in threading.enumerate():
        if thread.name.startswith("agent"):
            thread.join(60)
            assert not thread.is_alive()
    assert turns == [0]


def test_unanswered_rollout_is_lost(loops: Loops, tmp_path: Path, sandboxes: Sandboxes) -> None:
    async def never() -> str:
        await asyncio.sleep(600)
        return ""

    rollout = Rollout(loops, tmp_path / "out", "r2egym", lambda _prompt, _turn: never(), timeout_s=3)
    with pytest.raises(LostRolloutError, match="the model gave no answer"):
        asyncio.run(rollout.run())
    assert not sandboxes()


def test_agent_timeout_is_graded(loops: Loops, tmp_path: Path, sandboxes: Sandboxes) -> None:
    sleep = called("execute_bash", cmd="sleep 600")
    rollout = Rollout(loops, tmp_path / "out", "r2egym", play(sleep), "val", timeout_s=5, command_timeout_s=300)
    output = rollout.output
    assert output.reward_score == 0.0
    assert not sandboxes()
    store = open_store(rollout.row["extra_info"]["store"])
    record = SolveRecord.from_bytes(store.get(key(SolveRecord, "grpo-val-000010", INSTANCE, 1)))
    assert record.stop_reason is StopReason.TIMEOUT


def test_unreadable_calls_are_refused(tmp_path: Path, sandboxes: Sandboxes) -> None:
    loops = Loops(tmp_path / "loops", "actor_rollout_ref.rollout.multi_turn.format=gpt-oss")
    loops.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    rollout = Rollout(loops, tmp_path / "out", "r2egym", play(), use_fn_calling="true")
    with pytest.raises(ConfigError, match=r"multi_turn\.format: r2egym needs a tool format of the chat template"):
        asyncio.run(rollout.run())


def test_run_with_tools_uses_no_scaffold(loops: Loops, rows: str) -> None:
    with pytest.raises(ConfigError, match="is not a scaffold's agent"):
        loops.play(rows, INSTANCE, play("Hm."), name="swe_argo_r2egym", _target_="swe_argo.verl.ScaffoldAgentLoop")
