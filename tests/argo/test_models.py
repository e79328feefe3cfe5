"""Agents that ask a model, on the real controller: this machine's verdicts, every call counted, no key anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.agents.iterative import HOTTER
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory
from swe_argo.steps.store import open_store
from swe_argo.workflows.resources import MAX_AGENT_S
from tests import solutions
from tests.argo.disturbances import at_work, comes, end
from tests.argo.models import KEY, counted, credentials, endpoint, printed, telling, titles, usage
from tests.argo.pipeline import Pipeline
from tests.argo.undisturbed import Told, same
from tests.model_server import Answer, Script, after, by_text, call, flaky, play, rate_limited
from tests.model_server.answers import error
from tests.workflows.command import QUICK, failures, ids, summary, swe_argo

MODEL = "openai/scripted"
WAYS = [("r2egym", True), ("openhands", False), ("sweagent", False), ("mini-swe-agent", True), ("oneshot", False)]
"""Every agent that asks a model, in one of its formats."""
KILL = """for each in /proc/[0-9]*; do
  tr '\\0' ' ' <$each/cmdline | grep -q '^[^ ]*python3 -m steps' && kill -9 ${each#/proc/}
done; true"""
"""For a shell beside a step: kill -9, for which the step can do nothing."""
DEAD = error(401, "Incorrect API key provided.", "invalid_api_key", "invalid_request_error")


@pytest.fixture(autouse=True)
def no_key_is_told(pipeline: Pipeline) -> Iterator[None]:
    """Whatever a test does: when it is over, the key is in the namespace's Secret and nowhere else."""
    yield
    assert telling(pipeline, KEY) == []


def here(folder: Path, run: str, agent: str, script: Script, *flags: str) -> Told:
    """The same on this machine, with a server of its own, at the same address: reports tell it.

    A unit has no more time than a pod on Argo, whatever its agent's project gives it.
    """
    with endpoint(script) as server:
        words = ["--store", str(folder), "--run-id", run, "--backend", "local", "-j", "2", "--model", MODEL]
        words += ["--agent", agent, "--base-url", server.url, "--agent-timeout", str(MAX_AGENT_S), *ids(*QUICK), *flags]
        done = swe_argo("run", *words, env={"OPENAI_API_KEY": KEY})
        assert done.returncode == 0, done.stdout + done.stderr
        assert usage(str(folder), run) == counted(server)
    return Told.of(str(folder), run)


@pytest.mark.parametrize(("agent", "fn_calling"), WAYS, ids=[agent for agent, _ in WAYS])
def test_a_model_that_knows_the_answers_resolves_them_as_on_this_machine(
    agent: str, fn_calling: bool, tmp_path: Path, pipeline: Pipeline
) -> None:
    """The endpoint is once the Secret's, once the run's; each request is refused once before it is served.

    Steps tell of each call: the key is not even there.
    """
    run, word = f"r-{agent}", str(fn_calling).lower()

    def script() -> Script:
        return flaky(solutions.solving(agent, fn_calling=fn_calling), rate_limited(0))

    with endpoint(script()) as server:
        run_spec = {"select": {"instance_ids": QUICK}, "agent": {"use_fn_calling": word}}
        asked = {"agent": agent, "model": MODEL, "max_steps": 30, "log_level": "DEBUG", "spec": run_spec}
        if fn_calling:
            credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
            name = pipeline.submit(run, **asked)
        else:
            credentials(pipeline, LLM_API_KEY=KEY)
            name = pipeline.submit(run, base_url=server.url, **asked)
        pipeline.succeeds(name)
        assert summary(pipeline.store, run).headline.resolved == len(QUICK), pipeline.told(name)
        assert usage(pipeline.store, run) == counted(server)
        assert server.counts.requests == 2 * server.counts.calls
    ruler = here(tmp_path, run, agent, script(), "--use-fn-calling", word, "--max-steps", "30")
    same(Told.of(pipeline.store, run), ruler)
    assert "DEBUG swe_argo.steps.models" in printed(pipeline, name, "solve")
    assert pipeline.sandboxes() == []


def test_in_iterative_mode_a_further_attempt_in_a_fresh_sandbox_is_the_one_that_is_graded(
    tmp_path: Path, pipeline: Pipeline
) -> None:
    """The first leaves nothing to work on and says no more; what tells the model which one asks is the temperature."""
    run, wreck = "r-iterative", play(call("execute_bash", cmd="rm -rf /testbed/*"), Answer("I have no idea."))

    def script() -> Script:
        again = solutions.solving("r2egym")
        first = by_text(dict.fromkeys(titles(QUICK), wreck), otherwise=play(Answer("Ready.")))
        return lambda request: (again if request.get("temperature") == HOTTER else first)(request)

    run_spec = {"iterative": True, "max_malformed": 1, "use_fn_calling": "true"}
    with endpoint(script()) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        spec = {"select": {"instance_ids": QUICK}, "agent": run_spec}
        name = pipeline.submit(run, agent="r2egym", model=MODEL, spec=spec)
        pipeline.succeeds(name)
        assert summary(pipeline.store, run).headline.resolved == len(QUICK), pipeline.told(name)
        assert usage(pipeline.store, run) == counted(server)
    ruler = here(tmp_path, run, "r2egym", script(), *[f"--set=agent.{field}={run_spec[field]}" for field in run_spec])
    same(Told.of(pipeline.store, run), ruler)
    for store in (pipeline.store, str(tmp_path)):
        for instance in QUICK:
            solved = SolveRecord.from_bytes(open_store(store).get(key(SolveRecord, run, instance, 1)))
            told = [(one.stop_reason, one.temperature, one.accepted, one.chosen) for one in solved.attempts]
            assert told == [
                (StopReason.MALFORMED, 0.0, False, False),
                (StopReason.FINISHED, HOTTER, True, True),
            ]
    assert pipeline.sandboxes() == []


def test_a_key_that_dies_ends_its_units_at_once_and_a_resumed_run_does_them_all(pipeline: Pipeline) -> None:
    script = solutions.solving("r2egym")
    run_spec = {"select": {"instance_ids": QUICK}, "agent": {"use_fn_calling": "true"}}
    with endpoint(after(9, DEAD, script)) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        name = pipeline.submit("r-dead-key", agent="r2egym", model=MODEL, spec=run_spec)
        pipeline.ended(name)
        lost = failures(open_store(pipeline.store), "r-dead-key")
        # What had not begun by then is stopped before it has a sandbox.
        assert FailureClass.MODEL_ACCESS in {each.failure_class for each in lost}
        assert {each.failure_class for each in lost} <= {FailureClass.MODEL_ACCESS, FailureClass.STOPPED}
        # Each has been tried once: nothing mends a key in the meantime.
        assert len(lost) == len({each.instance_id for each in lost}) >= len(QUICK) - 1
        assert usage(pipeline.store, "r-dead-key") == counted(server)
    with endpoint(script) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        again = pipeline.submit("r-dead-key", agent="r2egym", model=MODEL, spec=run_spec)
        pipeline.succeeds(again)
    assert summary(pipeline.store, "r-dead-key").headline.resolved == len(QUICK), pipeline.told(again)


def test_pods_that_end_in_the_midst_of_a_conversation_leave_it_and_all_calls_count(pipeline: Pipeline) -> None:
    """One is deleted, of one the step is killed without a word (as the kernel does where memory runs out)."""
    deleted, killed = QUICK[:2]
    slow = {each: solutions.answers(each, "r2egym", fn_calling=True) for each in (deleted, killed)}
    scripts = {
        title: play(call("execute_bash", cmd="sleep 20; echo rested"), *answers)
        for title, answers in zip(titles(slow), slow.values(), strict=True)
    }
    run, run_spec = "r-cut-off", {"select": {"instance_ids": [deleted, killed]}, "agent": {"use_fn_calling": "true"}}
    with endpoint(by_text(scripts, otherwise=play(Answer("Ready.")))) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        name = pipeline.submit(run, agent="r2egym", model=MODEL, spec=run_spec)
        comes(lambda: server.counts.calls >= 3)  # plan's, and one of each unit: both sleep
        one = at_work(pipeline, "solve")
        other = at_work(pipeline, "solve", but=[one])
        end(pipeline, one)
        pipeline.kubectl("exec", other, "-c", "main", "--", "sh", "-c", KILL)
        pipeline.succeeds(name)
        assert usage(pipeline.store, run) == counted(server), pipeline.told(name)
    told = summary(pipeline.store, run)
    assert told.headline.resolved == 2
    held = open_store(pipeline.store)
    left = [each for each in held.keys(f"runs/{run}/units/") if "/tries/" in each and each.endswith(Trajectory.file)]
    assert len(left) == 2, left
    for each in left:
        cut = Trajectory.from_bytes(held.get(each))
        assert (cut.extra.stop_reason, cut.extra.usage.calls) == (StopReason.INTERRUPTED, 1)
    records = [SolveRecord.from_bytes(held.get(key(SolveRecord, run, each, 1))) for each in (deleted, killed)]
    assert [record.continued and record.continued.calls for record in records] == [1, 1]
    assert told.cost.failed_tries.calls == 0  # the next tries went on from what these had been answered
    assert pipeline.sandboxes() == []


def test_a_run_that_is_to_fail_fast_ends_at_its_first_lost_unit(pipeline: Pipeline) -> None:
    """Its model is out of order for one instance. Others that work then are stopped, and none of them is lost."""
    bad, *good = QUICK
    scripts: dict[str, Script] = {title: play(error(503, "no room")) for title in titles([bad])}
    scripts |= {title: play(call("execute_bash", cmd="sleep 80")) for title in titles(good)}
    run_spec = {
        "select": {"instance_ids": QUICK},
        "agent": {"use_fn_calling": "true"},
        "llm": {"num_retries": 0},
        "fail_fast": True,
    }
    with endpoint(by_text(scripts, otherwise=play(Answer("Ready.")))) as server:
        credentials(pipeline, OPENAI_API_KEY=KEY, LLM_BASE_URL=server.url)
        name = pipeline.submit("r-fail-fast", agent="r2egym", model=MODEL, retries=0, spec=run_spec)
        assert pipeline.ended(name) == "Failed"
    assert "Stop" in pipeline.workflow(name)["status"]["message"]
    told = summary(pipeline.store, "r-fail-fast")
    assert told.headline.resolved == 0
    lost = {each.instance_id: each.failure_class for each in failures(open_store(pipeline.store), "r-fail-fast")}
    assert lost[bad] is FailureClass.MODEL
    assert {lost[each] for each in lost.keys() - {bad}} <= {FailureClass.STOPPED}
    assert {each.instance_id for each in told.without_verdict} == set(QUICK)
    assert pipeline.sandboxes() == []
    assert pipeline.places() == 0


def test_what_a_run_says_of_retries_resources_and_words_holds_for_its_units(pipeline: Pipeline) -> None:
    """In place of the namespace's, and the factor once: with what a sandbox may take, not with each step."""
    run_spec = {"select": {"instance_ids": QUICK[:1]}, "sandbox": {"memory_mb": 128}}
    name = pipeline.submit("r-said", agent="idle", retries=1, resource_factor=3, log_level="DEBUG", spec=run_spec)
    pipeline.succeeds(name)
    held = open_store(pipeline.store)
    solved = SolveRecord.from_bytes(held.get(key(SolveRecord, "r-said", QUICK[0], 1)))
    assert (solved.machine.memory_mb, solved.machine.resource_factor) == (3 * 128, 3.0)
    (child,) = pipeline.children(name)
    said = {each["name"]: each.get("value") for each in pipeline.workflow(child)["spec"]["arguments"]["parameters"]}
    assert (said["retries"], said["fail-fast"], said["log-level"]) == ("1", "false", "DEBUG")
    for step in ("solve", "grade"):
        assert "DEBUG swe_argo.steps.sandbox" in printed(pipeline, name, step)
    assert not [each for each in held.keys("runs/r-said/") if Failure.file in each]
