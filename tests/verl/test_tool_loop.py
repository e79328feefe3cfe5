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
from tests.rollouts.cancelling import cancel_where
from tests.rollouts.stores import plan_failing_rows, plan_rows
from tests.solutions import rows as mini_rows
from tests.steps.contracts.test_verdict import graded

verl = pytest.importorskip("verl", reason="needs verl: make test-verl")

from omegaconf import OmegaConf  # noqa: E402

from swe_argo.workflows.rollouts.machine import RolloutMachine  # noqa: E402
from swe_argo.workflows.rollouts.rollout import LiveRollout, LostRolloutError  # noqa: E402
from tests.verl.loops import Loops, ScriptedServer, call, play, row  # noqa: E402

Sandboxes = Callable[[], list[str]]
INSTANCE = "mini__slugkit-2"
GOLD = mini_rows()[INSTANCE]["patch"]
SOLVE = call("bash", command="sed -i 's/+ len(separator)$/+ (len(separator) if kept else 0)/' slugkit/slug.py")
INVALID = GOLD.replace("separator", "nothing_that_is_there")

# As verl's worker does it, which has imported nothing of ours when it reads the file.
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


def test_the_keys_of_an_entry_hold_for_every_rollout_of_a_process(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LOOK_UP, str(tmp_path)]
    printed = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=1200).stdout
    lines = [line for line in printed.splitlines() if line.startswith("swe_argo")]
    entries = OmegaConf.load(ROOT / "templates" / "verl" / "agent_loops.yaml")
    assert lines == [f"{entry.name} 0.5" for entry in entries] * 2


def test_the_verified_patch_through_the_tool_gives_reward_1(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    output = loops.play(rows, INSTANCE, play(call("submit_solution", patch=GOLD)))
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"] == {"acc": 1.0, "suspect": 0.0, "outcome": "resolved"}


def test_what_was_changed_by_commands_is_the_solution_submitted_or_not(loops: Loops, rows: str) -> None:
    for last in (call("submit_solution"), "I am done.<|im_end|>"):
        output = loops.play(rows, INSTANCE, play(SOLVE, last))
        assert output.reward_score == 1.0


def test_an_empty_solution_gives_reward_0(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    output = loops.play(rows, INSTANCE, play(call("submit_solution", patch="")))
    assert (output.reward_score, output.extra_fields["reward_extra_info"]["outcome"]) == (0.0, "empty_patch")


def test_an_invalid_patch_is_told_and_may_be_mended(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    seen: list[str] = []
    answers = play(call("submit_solution", patch=INVALID), call("submit_solution", patch=GOLD))

    def looking(prompt: str, turn: int) -> str:
        seen.append(prompt)
        return str(answers(prompt, turn))

    assert loops.play(rows, INSTANCE, looking).reward_score == 1.0
    assert "The patch was not taken: it does not apply" in seen[1]
    assert "patch does not apply" in seen[1].partition("not taken")[2]


def test_an_invalid_patch_that_is_not_mended_costs_its_penalty(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    answers = play(call("submit_solution", patch=INVALID))
    assert loops.play(rows, INSTANCE, answers).reward_score == 0.0
    output = loops.play(rows, INSTANCE, answers, invalid_patch_penalty=0.5)
    assert output.reward_score == -0.5
    assert output.extra_fields["reward_extra_info"]["outcome"] == "patch_does_not_apply"


def test_reward_of_doubtful_verdict_follows_the_loop_options(
    loops: Loops, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_was_changed_is_the_solution_where_a_patch_was_not_taken(loops: Loops, rows: str) -> None:
    output = loops.play(rows, INSTANCE, play(call("submit_solution", patch=INVALID), SOLVE))
    assert output.reward_score == 1.0


def test_exactly_what_was_sampled_is_trained_on(loops: Loops, rows: str) -> None:
    texts = ("Let me look.\n" + call("bash", command="git status --short"), SOLVE, call("submit_solution"))
    server = ScriptedServer(loops.tokenizer, play(*texts))
    output = asyncio.run(loops.serve(rows, INSTANCE, server))
    [turns] = server.generated.values()
    sampled = [token for turn in turns for token in turn]
    pairs = list(zip(output.response_ids, output.response_mask, output.response_logprobs, strict=True))
    assert [token for token, mask, _ in pairs if mask] == sampled
    assert [logprob for _, mask, logprob in pairs if mask] == server.logprobs(sampled)
    assert {logprob for _, mask, logprob in pairs if not mask} == {0.0}
    shown = loops.tokenizer.decode([token for token, mask, _ in pairs if not mask])
    assert "Exit code: 0" in shown
    assert "was taken as your solution" in shown
    assert output.num_turns == 3 + 3 + 1


def test_a_response_of_no_token_is_one_that_nothing_is_learnt_from(loops: Loops, rows: str) -> None:
    output = loops.play(rows, INSTANCE, play(""))
    assert (output.response_mask, len(output.response_ids), output.response_logprobs) == ([0], 1, [0.0])
    assert loops.tokenizer.decode(output.prompt_ids).endswith("<|im_start|>assistant\n")
    assert output.reward_score == 0.0


def test_a_trajectory_has_one_sandbox_and_its_commands_go_on_in_it(
    loops: Loops, rows: str, sandboxes: Sandboxes
) -> None:
    there: list[list[str]] = []
    commands = ("cd slugkit && export A=1", 'echo "$PWD $A" > /tmp/seen', "cat /tmp/seen")
    seen = ""

    def answers(prompt: str, turn: int) -> str:
        nonlocal seen
        there.append(sandboxes())
        seen = prompt
        return call("bash", command=commands[turn]) if turn < len(commands) else "Done."

    loops.play(rows, INSTANCE, answers)
    assert len(there) == 4
    assert all(each == there[0] and len(each) == 1 for each in there)
    assert "/testbed/slugkit 1" in seen


def test_output_is_cut_in_the_middle_and_a_long_command_ended(
    loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    store = plan_rows(tmp_path / "store", agent={"name": _agent(), "command_timeout_s": 1})
    prompts: list[str] = []
    commands = ("echo begin; seq 100000; echo end; false", "sleep 600")

    def answers(prompt: str, turn: int) -> str:
        prompts.append(prompt)
        return call("bash", command=commands[turn]) if turn < len(commands) else "Done."

    loops.play(store, INSTANCE, answers, output_chars=300)
    shown = prompts[1][len(prompts[0]) :]
    assert "Exit code: 1\nbegin\n1\n" in shown
    assert "the middle of the output is left out" in shown
    assert "100000\nend" in shown
    assert len(shown) < 1000
    assert "The command was ended: it took longer than 1 s" in prompts[2]


def _agent() -> str:
    from tests.rollouts.stores import AGENT

    return f"{AGENT}:Scripted"


def test_a_command_that_no_machine_takes_is_told_and_the_work_goes_on(loops: Loops, rows: str) -> None:
    texts = (call("bash", command="echo \ud83d"), call("bash", command="echo \0"), SOLVE)
    prompts: list[str] = []

    def answers(prompt: str, turn: int) -> str:
        prompts.append(prompt)
        return str(play(*texts)(prompt, turn))

    assert loops.play(rows, INSTANCE, answers).reward_score == 1.0
    assert [prompt.count("bash did not run this") for prompt in prompts] == [0, 1, 2, 2]


def test_what_is_there_when_the_time_is_over_is_graded(
    loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    store = plan_rows(tmp_path / "store", timeout_s=6)
    turns = 0

    def answers(_prompt: str, turn: int) -> str:
        nonlocal turns
        turns = turn + 1
        return SOLVE if turn == 0 else call("bash", command="sleep 600")

    output = loops.play(store, INSTANCE, answers)
    assert turns == 2
    assert output.reward_score == 1.0


def test_a_model_that_breaks_its_sandbox_is_graded(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    output = loops.play(rows, INSTANCE, play(SOLVE, call("bash", command="kill -9 -1; kill -9 1; rm -rf /testbed")))
    assert output.reward_score == 0.0


def test_calls_of_one_answer_come_one_after_another(loops: Loops, rows: str) -> None:
    both = Loops.like(loops, "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2")
    two_calls = call("bash", command="sleep 1; echo one >> /tmp/order").removesuffix("<|im_end|>")
    two_calls += "\n" + call("bash", command="echo two >> /tmp/order")
    prompts: list[str] = []

    def answers(prompt: str, turn: int) -> str:
        prompts.append(prompt)
        return [two_calls, call("bash", command="echo $(cat /tmp/order)"), "Done."][turn]

    both.play(rows, INSTANCE, answers)
    assert "one two" in prompts[2]


def test_a_mistake_of_ours_is_nothing_that_a_model_learns_from(
    loops: Loops, rows: str, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(RolloutMachine, "run_command", fail)
    with pytest.raises(ZeroDivisionError):
        loops.play(rows, INSTANCE, play(call("bash", command="ls")))


def test_an_exception_of_the_server_leaves_no_sandbox(loops: Loops, rows: str, sandboxes: Sandboxes) -> None:
    def answers(_prompt: str, turn: int) -> str:
        if turn:
            assert sandboxes()
            raise RuntimeError("the engine died")
        return call("bash", command="ls")

    with pytest.raises(RuntimeError, match="the engine died"):
        loops.play(rows, INSTANCE, answers)
    assert not sandboxes()


@pytest.mark.parametrize("where", ["making its sandbox", "a command", "the model", "grading"])
def test_a_cancelled_trajectory_leaves_no_sandbox(
    loops: Loops, rows: str, sandboxes: Sandboxes, where: str, tmp_path: Path
) -> None:
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


def test_a_sandbox_that_the_world_lost_is_tried_again(
    loops: Loops, isolation: None, tmp_path: Path, sandboxes: Sandboxes
) -> None:
    store = plan_failing_rows(tmp_path, "solve 1", "grade 1", retries=1)
    assert loops.play(store, INSTANCE, play(call("submit_solution", patch=GOLD))).reward_score == 1.0
    assert not (tmp_path / "orders").read_text()


@pytest.mark.parametrize("role", ["solve", "grade"])
def test_a_rollout_that_the_world_lost_for_good_has_no_reward(
    loops: Loops, isolation: None, tmp_path: Path, role: str
) -> None:
    store = plan_failing_rows(tmp_path, *[f"{role} 1"] * 2, retries=1)
    with pytest.raises(LostRolloutError, match="failed 2 times: the node went away"):
        loops.play(store, INSTANCE, play(call("submit_solution", patch=GOLD)))


def test_a_worker_grades_its_share_of_the_machine(loops: Loops, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 32)

    async def grade() -> object:
        loop = loops.make(ScriptedServer(loops.tokenizer, play()))
        await loop.run({"logprobs": True}, **row(rows, INSTANCE), global_steps=1)
        return loop.options.graders

    assert asyncio.run(grade()) == 3  # 24 of this machine, by the 8 workers of grpo.yaml
