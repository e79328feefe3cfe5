"""A further try of a solve goes on where the last one was killed: no answer is asked for, or paid for, twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from swe_argo.steps.contracts.solve_record import Continued
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory, spent_in
from tests import small_agent
from tests.model_server import Answer, ModelServer, Script, by_text, call, model_server, play
from tests.steps.kept_solve import KeptSolve, asked_twice, numbered
from tests.steps.solve_process import observations

STEPS = (
    "echo 'a = 3' > a.py",
    "date; git status --short",
    "for i in 1 2 3; do echo line $i >> notes.txt; done; wc -l notes.txt",
    "mkdir -p deep/er && cp a.py deep/er/b.py; ls -R deep",
    "sleep 0.1; cat notes.txt",
    "mktemp; time true",
    "sed -i s/3/4/ a.py; git diff",
)


def look_and_edit(tool: str, argument: str, turns: int, last: Answer) -> list[Answer]:
    """So many turns, each of which shows or changes something, ``last`` the last of them."""
    commands = [f"{STEPS[turn % len(STEPS)]}; echo {turn} >> log.txt" for turn in range(turns - 1)]
    return numbered(*(call(tool, **{argument: command}) for command in commands), last)


def r2egym(turns: int) -> list[Answer]:
    return look_and_edit("execute_bash", "cmd", turns, call("finish"))


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff"
SCAFFOLDS = {
    "r2egym": r2egym(15),
    "openhands": look_and_edit("execute_bash", "command", 15, call("finish", message="done")),
    "sweagent": [*look_and_edit("bash", "command", 14, call("submit")), *numbered(*[call("submit")] * 20)[14:15]],
    "mini-swe-agent": look_and_edit("bash", "command", 15, call("bash", command=SUBMIT)),
}
PROGRAMS = {
    "chat": ("chat",),
    "anthropic": ("anthropic", "--stream"),
    "responses": ("responses", "--stream", "--and", "sub-agents"),
}
"""The words of a program of this project's own, by the protocol that it speaks."""
WORKS = look_and_edit("bash", "command", 15, Answer("It is done."))
HELPS = [*numbered(call("bash", command="ls")), Answer("Nothing there.")]
AGENTS = [*SCAFFOLDS, *PROGRAMS]


@pytest.mark.parametrize("agent", ["r2egym", "responses"])
def test_a_killed_solve_ends_as_one_that_nobody_disturbed(tmp_path: Path, agent: str) -> None:
    points = 3 if agent == "r2egym" else 1
    killed_at_random_points(tmp_path, agent, points=points, chance=random.Random(agent))


@pytest.mark.long
@pytest.mark.parametrize("agent", AGENTS)
def test_a_solve_may_be_killed_at_any_point(tmp_path: Path, agent: str) -> None:
    for number in range(5 if agent == "r2egym" else 1):
        killed_at_random_points(tmp_path / str(number), agent, points=4, chance=random.Random(f"{agent}{number}"))


def killed_at_random_points(root: Path, agent: str, *, points: int, chance: random.Random) -> None:
    """One solve undisturbed, another killed so often; they end alike."""
    root.mkdir(exist_ok=True)
    if agent == "mini-swe-agent":
        pytest.importorskip("minisweagent")
    with model_server(script(agent), latency_s=0.02) as server:
        calm = kept_solve(root / "calm", server, agent)
        calm.finish()
        turns = server.counts.requests
    with model_server(script(agent), latency_s=0.02) as server:
        made = kept_solve(root / "killed", server, agent)
        for place in sorted(chance.sample(range(2, turns), points)):
            made.kill(server, place + sum(asked_twice(server)), chance.uniform(0.0, 0.15))
        said = made.finish()
        again = asked_twice(server)
        assert sum(again) <= points * in_flight(agent), "more than the calls in flight were asked again"
        assert server.counts.requests == turns + sum(again)
        answered = server.counts.calls
    assert made.patch == calm.patch
    assert made.conversation == calm.conversation
    assert made.beside == calm.beside
    record, continued = made.solved, made.solved.continued
    assert "going on from an earlier try" in said
    assert continued is not None
    assert not continued.started_over
    assert record.usage.calls == turns == calm.solved.usage.calls
    assert record.usage.prompt_tokens == calm.solved.usage.prompt_tokens
    assert record.spent.calls == turns - continued.calls
    assert answered <= turns + points * in_flight(agent)


def script(agent: str) -> Script:
    """What the model says to an agent."""
    if agent in SCAFFOLDS:
        return play(*SCAFFOLDS[agent])
    return by_text({f"Look into part {number}.": play(*HELPS) for number in (1, 2, 3)}, otherwise=play(*WORKS))


def kept_solve(root: Path, server: ModelServer, agent: str) -> KeptSolve:
    """A solve by an agent."""
    if agent in SCAFFOLDS:
        return KeptSolve(root, server, agent)
    return KeptSolve(
        root, server, program=small_agent.recipe(str(small_agent.FOLDER / "small-agent"), *PROGRAMS[agent])
    )


def in_flight(agent: str) -> int:
    """The most calls that an agent makes at a time."""
    return 3 if "sub-agents" in PROGRAMS.get(agent, ()) else 1


def test_what_comes_out_otherwise_is_started_over_and_said(tmp_path: Path) -> None:
    """The machine is not what it was: a file outside of the repository has another content."""
    outside = tmp_path / "outside"
    outside.write_text("before")
    look = call("execute_bash", cmd=f"cat {outside}")
    with model_server(play(*numbered(look, look, look, call("finish"))), latency_s=1.0) as server:
        made = KeptSolve(tmp_path / "solve", server)
        made.kill(server, 3)
        outside.write_text("after")
        said = made.finish()
        assert server.counts.requests == 3 + 4
    assert made.solved.continued == Continued(started_over="after answer 1 it saw something else")
    assert "attempt 1 is started over" in said
    assert made.solved.usage == made.solved.spent
    trajectory: Trajectory = made.get(Trajectory)
    assert all("after" in each for each in observations(trajectory)[:3])
    assert trajectory.extra.inherited is None


@pytest.mark.parametrize("field", ["continue_solves", pytest.param("save_checkpoints", marks=pytest.mark.long)])
def test_nothing_is_gone_on_from_where_nobody_wants_it(tmp_path: Path, field: str) -> None:
    with model_server(play(*r2egym(4)), latency_s=1.0) as server:
        made = KeptSolve(tmp_path, server, spec={field: False})
        made.kill(server, 3)
        made.finish()
        assert server.counts.requests == 3 + 4
    assert made.solved.continued is None
    assert not made.store.exists()


@pytest.mark.long
def test_limits_count_what_was_before(tmp_path: Path) -> None:
    with model_server(play(*r2egym(9)), latency_s=0.05) as server:
        made = KeptSolve(tmp_path, server, max_steps=5, max_steps_absolute=5)
        made.kill(server, 4)
        made.finish()
        assert server.counts.requests == 5 + len(asked_twice(server))
    assert made.solved.stop_reason is StopReason.ABSOLUTE_STEPS
    assert made.solved.usage.calls == 5


@pytest.mark.long
def test_an_agent_s_time_goes_on_from_where_it_was(tmp_path: Path) -> None:
    slow = numbered(call("execute_bash", cmd="true"), *[call("execute_bash", cmd="sleep 1.5")] * 30)
    with model_server(play(*slow)) as server:
        made = KeptSolve(tmp_path, server, timeout_s=8.0)
        made.kill(server, 4)
        made.finish()
    assert made.solved.stop_reason is StopReason.TIMEOUT
    trajectory: Trajectory = made.get(Trajectory)
    assert trajectory.extra.seconds >= 8.0
    assert server.counts.requests <= 9


@pytest.mark.long
def test_attempts_of_iterative_mode_are_gone_on_from_too(tmp_path: Path) -> None:
    """The first attempt leaves no patch; the second is killed, and goes on in its midst."""
    look = call("execute_bash", cmd="cat a.py")
    edit = call("execute_bash", cmd="echo 'a = 3' > a.py")
    first, second = play(*numbered(look, call("finish"))), play(*numbered(edit, look, look, call("finish")))

    def script(request: dict[str, object]) -> Answer:
        answer = (first if request["temperature"] == 0.0 else second)(request)
        assert isinstance(answer, Answer)
        return answer

    with model_server(script, latency_s=0.05) as server:
        made = KeptSolve(tmp_path, server, iterative=True)
        made.kill(server, 5)
        left = (made.outputs / "try" / Trajectory.file).read_bytes()
        made.finish()
        again = asked_twice(server)
        assert len(again) <= 1
        assert server.counts.requests == 6 + sum(again)
    record = made.solved
    assert [one.usage.calls for one in record.attempts] == [2, 4]
    assert record.continued is not None
    assert record.continued.calls in (4, 5)
    assert record.continued.tries == ["try-1"]
    assert spent_in(left).calls in (4, 5)
    assert record.usage.calls == 6
    assert b"+a = 3" in made.patch
