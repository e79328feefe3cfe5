"""verl's own ToolAgentLoop, with our sandbox and our verdict, on a CPU."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.paths import ROOT
from tests.rollouts.fixtures import cancel_where
from tests.rollouts.stores import AGENT, plan_failing_rows, plan_rows
from tests.solutions import rows as mini_rows
from tests.steps.contracts.test_verdict import graded

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from omegaconf import OmegaConf  # noqa: E402

from swe_argo.workflows.rollouts.machine import RolloutMachine  # noqa: E402
from swe_argo.workflows.rollouts.rollout import LiveRollout, LostRolloutError  # noqa: E402
from tests.verl.loops import Loops, ScriptedServer, call, play, recorded  # noqa: E402

Sandboxes = Callable[[], list[str]]
INSTANCE = "mini__slugkit-2"
GOLD = mini_rows()[INSTANCE]["patch"]
SOLVE = call("bash", command="sed -i 's/+ len(separator)$/+ (len(separator) if kept else 0)/' slugkit/slug.py")
INVALID = GOLD.replace("separator", "nothing_that_is_there")

# Like verl's worker, which has imported no module of ours when it reads the file.
LOOK_UP = """
import asyncio, sys
from pathlib import Path
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as registry
from tests.verl.loops import Loops

async def make():
    for name in list(registry) * 2:
        print(name, loops.instantiate(registry[name]).options.invalid_patch_penalty)

for entry in OmegaConf.load("templates/verl/agent_loops.yaml"):
    registry[entry.name] = OmegaConf.merge(entry, {"invalid_patch_penalty": 0.5})
for name in [name for name in registry if not name.startswith("swe_argo")]:
    del registry[name]
loops = Loops(Path(sys.argv[1]))
asyncio.run(make())
"""


def test_loop_options_apply_every_time(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOOK_UP, str(tmp_path)]
    printed = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=1200).stdout
    lines = [line for line in printed.splitlines() if line.startswith("swe_argo")]
    entries = OmegaConf.load(ROOT / "templates" / "verl" / "agent_loops.yaml")
    assert lines == [f"{entry.name} 0.5" for entry in entries] * 2


def test_gold_patch_earns_reward_1(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    output = loops.play(rows, INSTANCE, play(call("submit_solution", patch=GOLD)))
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"] == {"acc": 1.0, "suspect": 0.0, "outcome": "resolved"}


@pytest.mark.parametrize(
    "last", [call("submit_solution"), "I am done.<|im_end|>", call("submit_solution", patch=INVALID)]
)
def test_changed_files_are_the_solution(loops: Loops, rows: str, last: str) -> None:
    assert loops.play(rows, INSTANCE, play(SOLVE, last)).reward_score == 1.0


def test_invalid_patch_may_be_corrected(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    prompts, answers = recorded(call("submit_solution", patch=INVALID), call("submit_solution", patch=GOLD))
    assert loops.play(rows, INSTANCE, answers).reward_score == 1.0
    assert "The patch was not taken: it does not apply" in prompts[1]
    assert "patch does not apply" in prompts[1].partition("not taken")[2]


def test_doubtful_reward_follows_options(loops: Loops, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def grade(*_: object) -> SimpleNamespace:
        return SimpleNamespace(record=record)

    monkeypatch.setattr(LiveRollout, "grade", grade)
    answers = play(call("submit_solution", patch=GOLD))
    record = graded("suspect", "contradicted")
    output = loops.play(rows, INSTANCE, answers)
    assert output.reward_score == 0.0
    assert output.extra_fields["reward_extra_info"] == {"acc": 1.0, "suspect": 1.0, "outcome": "resolved"}
    record = graded("unconfirmed", "not_confirmed")
    with pytest.raises(LostRolloutError, match="dropped"):
        loops.play(rows, INSTANCE, answers)
    assert loops.play(rows, INSTANCE, answers, unconfirmed="keep").reward_score == 1.0


def test_only_sampled_tokens_are_trained(loops: Loops, rows: str) -> None:
    texts = ("Let me look.\n" + call("bash", command="git status --short"), SOLVE, call("submit_solution"))
    server = ScriptedServer(loops.tokenizer, play(*texts))
    output = asyncio.run(loops.serve(rows, INSTANCE, server))
    [turns] = server.generated.values()
    sampled = [token for turn in turns for token in turn]
    pairs = list(zip(output.response_ids, output.response_mask, output.response_logprobs, strict=True))
    assert [token for token, mask, _ in pairs if mask] == sampled
    assert [logprob for _, mask, logprob in pairs if mask] == server.logprobs(sampled)
    assert {logprob for _, mask, logprob in pairs if not mask} == {0.0}
    observations = loops.tokenizer.decode([token for token, mask, _ in pairs if not mask])
    assert "Exit code: 0" in observations
    assert "was taken as your solution" in observations
    assert output.num_turns == 3 + 3 + 1


def test_empty_response_trains_nothing(loops: Loops, rows: str) -> None:
    output = loops.play(rows, INSTANCE, play(""))
    assert (output.response_mask, len(output.response_ids), output.response_logprobs) == ([0], 1, [0.0])
    assert loops.tokenizer.decode(output.prompt_ids).endswith("<|im_start|>assistant\n")
    assert output.reward_score == 0.0


def test_trajectory_has_one_sandbox(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    snapshots: list[list[str]] = []
    commands = ("cd slugkit && export A=1", 'echo "$PWD $A" > /tmp/seen', "cat /tmp/seen")
    texts = [call("bash", command=command) for command in commands]
    prompts, answers = recorded(*texts, "Done.", look=lambda: snapshots.append(sandboxes()))
    loops.play(rows, INSTANCE, answers)
    assert len(snapshots) == 4
    assert all(snapshot == snapshots[0] and len(snapshot) == 1 for snapshot in snapshots)
    assert "/testbed/slugkit 1" in prompts[-1]


def test_output_and_commands_are_bounded(loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes) -> None:
    store = plan_rows(tmp_path / "store", agent={"name": f"{AGENT}:Scripted", "command_timeout_s": 1})
    commands = ("echo begin; seq 100000; echo end; false", "sleep 600")
    prompts, answers = recorded(*[call("bash", command=command) for command in commands], "Done.")
    loops.play(store, INSTANCE, answers, output_chars=300)
    output = prompts[1][len(prompts[0]) :]
    assert "Exit code: 1\nbegin\n1\n" in output
    assert "the middle of the output is left out" in output
    assert "100000\nend" in output
    assert len(output) < 1000
    assert "The command was ended: it took longer than 1 s" in prompts[2]


def test_invalid_command_is_answered(loops: Loops, rows: str) -> None:
    prompts, answers = recorded(call("bash", command="echo \ud83d"), call("bash", command="echo \0"), SOLVE)
    assert loops.play(rows, INSTANCE, answers).reward_score == 1.0
    assert [prompt.count("bash did not run this") for prompt in prompts] == [0, 1, 2, 2]


def test_timeout_is_graded(loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes) -> None:
    store = plan_rows(tmp_path / "store", timeout_s=6)
    prompts, answers = recorded(SOLVE, call("bash", command="sleep 600"))
    assert loops.play(store, INSTANCE, answers).reward_score == 1.0
    assert len(prompts) == 2


def test_parallel_calls_run_in_order(loops: Loops, rows: str) -> None:
    both = Loops.like(loops, "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2")
    two_calls = call("bash", command="sleep 1; echo one >> /tmp/order").removesuffix("<|im_end|>")
    two_calls += "\n" + call("bash", command="echo two >> /tmp/order")
    prompts, answers = recorded(two_calls, call("bash", command="echo $(cat /tmp/order)"), "Done.")
    both.play(rows, INSTANCE, answers)
    assert "one two" in prompts[2]


def test_internal_error_is_raised(
    loops: Loops, rows: str, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(RolloutMachine, "run_command", fail)
    with pytest.raises(ZeroDivisionError):
        loops.play(rows, INSTANCE, play(call("bash", command="ls")))


def test_server_error_leaves_no_sandbox(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    def answers(_prompt: str, turn: int) -> str:
        if turn:
            assert sandboxes()
            raise RuntimeError("the engine died")
        return call("bash", command="ls")

    with pytest.raises(RuntimeError, match="the engine died"):
        loops.play(rows, INSTANCE, answers)
    assert not sandboxes()


@pytest.mark.parametrize("where", ["making its sandbox", "a command", "the model", "grading"])
def test_cancelled_rollout_cleans_up(loops: Loops, rows: str, sandboxes: Sandboxes, where: str, tmp_path: Path) -> None:
    async def script() -> None:
        reached = asyncio.Event()

        async def wait() -> str:
            reached.set()
            await asyncio.sleep(600)
            return ""

        def answers(_prompt: str, turn: int) -> object:
            if where == "the model":
                return wait()
            if where == "a command":
                reached.set()
                return call("bash", command="sleep 600")
            reached.set()
            return call("submit_solution", patch=GOLD)

        task = asyncio.create_task(loops.run(rows, INSTANCE, answers))  # type: ignore[arg-type]
        await cancel_where(task, where, reached, sandboxes)
        assert not sandboxes()

    asyncio.run(script())


def test_lost_sandbox_is_retried(loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes) -> None:
    store = plan_failing_rows(tmp_path, "solve 1", "grade 1", retries=1)
    assert loops.play(store, INSTANCE, play(call("submit_solution", patch=GOLD))).reward_score == 1.0
    assert not (tmp_path / "orders").read_text()


@pytest.mark.parametrize("role", ["solve", "grade"])
def test_permanent_loss_has_no_reward(loops: Loops, isolation: None, tmp_path: Path, role: str) -> None:
    store = plan_failing_rows(tmp_path, *[f"{role} 1"] * 2, retries=1)
    with pytest.raises(LostRolloutError, match="failed 2 times: the node went away"):
        loops.play(store, INSTANCE, play(call("submit_solution", patch=GOLD)))
