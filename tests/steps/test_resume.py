"""A further try of a solve goes on where the last one was killed: no answer is asked for, or paid for, twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from swe_argo.steps.contracts.solve_record import Continued
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory, usage_of_trajectory
from tests import small_agent
from tests.model_server import Answer, ModelServer, Script, by_text, call, model_server, play
from tests.steps.resumable_solve import ResumableSolve, numbered, repeated_requests
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


def test_killed_solve_ends_alike(tmp_path: Path) -> None:
    killed_at_random_points(tmp_path, "r2egym", points=3, chance=random.Random("r2egym"))


@pytest.mark.long
@pytest.mark.parametrize("agent", AGENTS)
def test_solve_survives_any_kill(tmp_path: Path, agent: str) -> None:
    for number in range(5 if agent == "r2egym" else 1):
        killed_at_random_points(tmp_path / str(number), agent, points=4, chance=random.Random(f"{agent}{number}"))


def killed_at_random_points(root: Path, agent: str, *, points: int, chance: random.Random) -> None:
    """One solve undisturbed, another killed so often; they end alike."""
    root.mkdir(exist_ok=True)
    if agent == "mini-swe-agent":
        pytest.importorskip("minisweagent")
    with model_server(script(agent), latency_s=0.02) as server:
        calm = make_solve(root / "calm", server, agent)
        calm.finish()
        turns = server.counts.requests
    with model_server(script(agent), latency_s=0.02) as server:
        solve = make_solve(root / "killed", server, agent)
        for place in sorted(chance.sample(range(2, turns), points)):
            solve.kill(server, place + sum(repeated_requests(server)), chance.uniform(0.0, 0.15))
        output = solve.finish()
        again = repeated_requests(server)
        assert sum(again) <= points * in_flight(agent), "more than the calls in flight were asked again"
        assert server.counts.requests == turns + sum(again)
        answered = server.counts.calls
    assert solve.patch == calm.patch
    assert solve.conversation == calm.conversation
    assert solve.beside == calm.beside
    record, continued = solve.solved, solve.solved.continued
    assert "resuming an earlier try" in output
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


def make_solve(root: Path, server: ModelServer, agent: str) -> ResumableSolve:
    """A solve by an agent."""
    if agent in SCAFFOLDS:
        return ResumableSolve(root, server, agent)
    return ResumableSolve(
        root, server, program=small_agent.recipe(str(small_agent.FOLDER / "small-agent"), *PROGRAMS[agent])
    )


def in_flight(agent: str) -> int:
    """The most calls that an agent makes at a time."""
    return 3 if "sub-agents" in PROGRAMS.get(agent, ()) else 1


def test_diverging_resume_starts_over(tmp_path: Path) -> None:
    """The machine is not what it was: a file outside of the repository has another content."""
    outside = tmp_path / "outside"
    outside.write_text("before")
    look = call("execute_bash", cmd=f"cat {outside}")
    with model_server(play(*numbered(look, look, look, call("finish"))), latency_s=1.0) as server:
        solve = ResumableSolve(tmp_path / "solve", server)
        solve.kill(server, 3)
        outside.write_text("after")
        output = solve.finish()
        assert server.counts.requests == 3 + 4
    assert solve.solved.continued == Continued(started_over="a result after answer 1 differs from the recorded one")
    assert "attempt 1 starts over" in output
    assert solve.solved.usage == solve.solved.spent
    trajectory: Trajectory = solve.get(Trajectory)
    assert all("after" in observation for observation in observations(trajectory)[:3])
    assert trajectory.extra.inherited is None


@pytest.mark.parametrize("field", ["continue_solves", pytest.param("save_checkpoints", marks=pytest.mark.long)])
def test_resume_can_be_disabled(tmp_path: Path, field: str) -> None:
    with model_server(play(*r2egym(4)), latency_s=1.0) as server:
        solve = ResumableSolve(tmp_path, server, spec={field: False})
        solve.kill(server, 3)
        solve.finish()
        assert server.counts.requests == 3 + 4
    assert solve.solved.continued is None
    assert not solve.store.exists()


@pytest.mark.long
def test_resume_counts_earlier_steps(tmp_path: Path) -> None:
    with model_server(play(*r2egym(9)), latency_s=0.05) as server:
        solve = ResumableSolve(tmp_path, server, max_steps=5, max_steps_absolute=5)
        solve.kill(server, 4)
        solve.finish()
        assert server.counts.requests == 5 + len(repeated_requests(server))
    assert solve.solved.stop_reason is StopReason.ABSOLUTE_STEPS
    assert solve.solved.usage.calls == 5


@pytest.mark.long
def test_resume_counts_earlier_time(tmp_path: Path) -> None:
    slow = numbered(call("execute_bash", cmd="true"), *[call("execute_bash", cmd="sleep 1.5")] * 30)
    with model_server(play(*slow)) as server:
        solve = ResumableSolve(tmp_path, server, timeout_s=8.0)
        solve.kill(server, 4)
        solve.finish()
    assert solve.solved.stop_reason is StopReason.TIMEOUT
    trajectory: Trajectory = solve.get(Trajectory)
    assert trajectory.extra.seconds >= 8.0
    assert server.counts.requests <= 9


@pytest.mark.long
def test_resume_continues_attempts(tmp_path: Path) -> None:
    """The first attempt leaves no patch; the second is killed, and goes on in its midst."""
    look = call("execute_bash", cmd="cat a.py")
    edit = call("execute_bash", cmd="echo 'a = 3' > a.py")
    first, second = play(*numbered(look, call("finish"))), play(*numbered(edit, look, look, call("finish")))

    def script(request: dict[str, object]) -> Answer:
        answer = (first if request["temperature"] == 0.0 else second)(request)
        assert isinstance(answer, Answer)
        return answer

    with model_server(script, latency_s=0.05) as server:
        solve = ResumableSolve(tmp_path, server, iterative=True)
        solve.kill(server, 5)
        partial = (solve.outputs / "try" / Trajectory.file).read_bytes()
        solve.finish()
        again = repeated_requests(server)
        assert len(again) <= 1
        assert server.counts.requests == 6 + sum(again)
    record = solve.solved
    assert [attempt.usage.calls for attempt in record.attempts] == [2, 4]
    assert record.continued is not None
    assert record.continued.calls in (4, 5)
    assert record.continued.tries == ["try-1"]
    assert usage_of_trajectory(partial).calls in (4, 5)
    assert record.usage.calls == 6
    assert b"+a = 3" in solve.patch
