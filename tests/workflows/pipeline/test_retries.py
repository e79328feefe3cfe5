"""Which tries are tried again: the rendered expressions, evaluated over what Argo and kubelets are known to say."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType

from hypothesis import given
from hypothesis import strategies as st

from swe_argo.steps.argo.node_failures import failure_reason
from swe_argo.steps.contracts.failure import format_exit_line
from swe_argo.workflows.resources import OUTAGES
from tests.paths import ROOT
from tests.workflows.pipeline.rendered import Manifests, committed

OF_A_RUN = ("plan", "list", "solve", "grade", "canary", "report", "compare", "finalize")
PROGRAMS = {
    **{name: name for name in OF_A_RUN},
    **{"plan-training": "plan_training", "plan-rollouts": "plan_round", "plan-measurement": "plan_round"},
    **{"learn": "learn", "halt": "halt"},
}
"""Template -> its program."""
STEPS = tuple(PROGRAMS)
CONFIG, BUG = 64, 70
RETRIES = 2


@dataclass(frozen=True)
class Ended:
    """How a try ended, as ``lastRetry`` says it."""

    status: str
    exitCode: str
    message: str


AGAIN = {
    "infrastructure": Ended("Failed", "75", "main: Error (exit code 75): solve: the sandbox was lost"),
    "out of resources": Ended("Failed", "76", "main: Error (exit code 76): grade: out of memory"),
    "out of memory in the step": Ended("Failed", "137", "main: OOMKilled (exit code 137)"),
    "told to end": Ended("Failed", "143", "main: Error (exit code 143): solve: told to end (SIGTERM)"),
    "pod deleted by force": Ended("Error", "-1", "pod deleted"),
    "inputs not fetched": Ended("Error", "64", "init: Error (exit code 64): failed to get s3://b/runs/r/run.json"),
    "outputs not saved": Ended("Error", "0", "wait: Error (exit code 64): failed to put file: 503"),
    "never started": Ended("Error", "-1", "Pod failed before main container starts due to ContainerCreating: "),
    "no node, or no image": Ended("Failed", "-1", "timeout"),
    "deadline": Ended("Failed", "-1", "Pod was active on the node longer than the specified deadline"),
    "evicted": Ended(
        "Failed", "-1", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 8Mi. "
    ),
    "evicted while it ended": Ended("Failed", "1", "The node was low on resource: ephemeral-storage. "),
    "evicted by its reason": Ended("Failed", "-1", "Evicted"),
    "node shut down": Ended("Failed", "-1", "Pod was terminated in response to imminent node shutdown."),
    "node shutting down": Ended("Failed", "-1", "Pod was rejected: Pod was rejected as the node is shutting down."),
    "preempted by the kubelet": Ended("Failed", "-1", "Preempted in order to admit critical pod"),
    "node full after all": Ended(
        "Failed",
        "-1",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 1960, capacity: 2000",
    ),
    "node of other labels now": Ended(
        "Failed",
        "-1",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    "kubelet's plugins not ready": Ended(
        "Failed", "-1", "Pod was rejected: Allocate failed due to no healthy devices present, which is unexpected"
    ),
    "machine gone without a word": Ended("Failed", "-1", "can't find failed message for pod run-x namespace evals"),
    "told to end while argoexec starts": Ended("Failed", "2", "main: Error (exit code 2)"),
    "told to end before argoexec starts it": Ended(
        "Failed", "64", "main: Error (exit code 64): failed to start command: context canceled"
    ),
    "argoexec's own trouble": Ended("Failed", "64", "main: Error (exit code 64): failed to read template: i/o error"),
    "64 without a word": Ended("Failed", "64", "main: Error (exit code 64)"),
    "70 without a word": Ended("Failed", "70", "main: Error (exit code 70)"),
    "interpreter crashed": Ended("Failed", "139", "main: Error (exit code 139)"),
    "no such module": Ended("Failed", "1", "main: Error (exit code 1)"),
    "program not in the image": Ended("Failed", "127", "main: Error (exit code 127)"),
    "container not started": Ended("Failed", "128", "main: StartError (exit code 128): failed to create task"),
    "wait told to end": Ended("Error", "0", "wait: Error (exit code 2)"),
    "nobody's words": Ended("Failed", "0", "pod failed: wait container did not complete successfully"),
}
NEVER = {
    "wrong request": Ended("Failed", "64", "main: Error (exit code 64): {step}: dataset: there is no file x"),
    "wrong request of odd words": Ended(
        "Failed", "64", "main: Error (exit code 64): {step}: run_id: 'evicted' is not a valid run id"
    ),
    "our bug": Ended("Failed", "70", "main: Error (exit code 70): {step}: KeyError: 'preempt'"),
    "bad flags": Ended("Failed", "64", "main: Error (exit code 64): {step}: unrecognized arguments: --new"),
    "stopped": Ended("Failed", "-1", "workflow shutdown with strategy:  Stop"),
    "the workflow's deadline": Ended("Failed", "-1", "Step exceeded its deadline"),
}
"""``{step}`` stands for the name of the program."""
SHARD_FAILED = "main: Error (exit code 64): failure condition '{status.phase in [Error Failed]}' evaluated true"
WAIT_AGAIN = {
    "API server away": Ended(
        "Failed", "64", "main: Error (exit code 64): no more retries dial tcp: connection refused"
    ),
    "shard deleted": Ended(
        "Failed",
        "64",
        "main: Error (exit code 64): The resource has been deleted while its status was still being checked.",
    ),
    "drained": Ended(
        "Failed", "64", "main: Error (exit code 64): client rate limiter Wait returned an error: context canceled"
    ),
    **{name: AGAIN[name] for name in ("pod deleted by force", "no node, or no image", "evicted", "node shut down")},
    **{name: AGAIN[name] for name in ("node shutting down", "node full after all", "machine gone without a word")},
    "out of memory": Ended("Failed", "137", "main: OOMKilled (exit code 137)"),
    "told to end": Ended("Failed", "143", "main: Error (exit code 143)"),
}
WAIT_NEVER = {
    "shard failed": Ended("Failed", "64", SHARD_FAILED),
    **{name: NEVER[name] for name in ("stopped", "the workflow's deadline")},
}


@cache
def _code(expression: str) -> CodeType:
    """What expr-lang makes of it, by way of Python: the operators used are the same under other names."""
    text = expression.replace("{{workflow.parameters.retries}}", str(RETRIES))
    text = re.sub(r"asInt\(([\w.]+)\)", r"int(\1)", text)
    text = re.sub(r"\(([^()?]*) \? ([^?]*) : ([^?]*?)\) \|\|", r"((\2) if (\1) else (\3)) ||", text)
    text = re.sub(r"lastRetry\.message matches ('(?:[^'\\]|\\.)*')", r"bool(re.search(\1, lastRetry.message))", text)
    text = re.sub(r"!(?!=)", " not ", text.replace("||", " or ").replace("&&", " and "))
    return compile(text.strip(), "retryStrategy.expression", "eval")


def again(expression: str, ended: Ended, retries: int = 0) -> bool:
    """Return whether a try with this end is retried, after ``retries`` retries."""
    names = {"__builtins__": {}, "re": re, "int": int, "bool": bool, "lastRetry": ended, "retries": str(retries)}
    return bool(eval(_code(expression), names))


def of(argo: Manifests, template: str) -> str:
    return str(argo.template(template)["retryStrategy"]["expression"])


def insert_name(ended: Ended, step: str) -> Ended:
    """Return the end with the name of the template's program in its message."""
    return replace(ended, message=ended.message.replace("{step}", PROGRAMS[step]))


def test_retries_follow_failure_kind(argo: Manifests) -> None:
    for step in STEPS:
        for name, end in AGAIN.items():
            assert again(of(argo, step), end), f"{step}, {name}"
        for name, end in NEVER.items():
            assert not again(of(argo, step), insert_name(end, step)), f"{step}, {name}"


IN_OUTAGES = {
    "inputs not fetched": AGAIN["inputs not fetched"],
    "outputs not saved": AGAIN["outputs not saved"],
    "API server away": Ended(
        "Failed", "75", "main: Error (exit code 75): {step}: reading pod sb-1: the API server does not answer"
    ),
    "store away": Ended("Failed", "75", "main: Error (exit code 75): {step}: the store s3://b failed: 503"),
}


def test_outages_have_own_retries(argo: Manifests) -> None:
    for step in STEPS:
        limit = argo.template(step)["retryStrategy"]["limit"]
        assert limit == f"{{{{=asInt(workflow.parameters.retries) + {OUTAGES}}}}}", step
        for retries in range(RETRIES + OUTAGES):
            for name, end in IN_OUTAGES.items():
                assert again(of(argo, step), insert_name(end, step), retries), (
                    f"{step}, {name}, after {retries} retries"
                )
            for name in ("infrastructure", "pod deleted by force", "deadline", "told to end while argoexec starts"):
                assert again(of(argo, step), AGAIN[name], retries) == (retries < RETRIES), f"{step}, {name}, {retries}"


def test_unstartable_pod_is_retried_once(argo: Manifests) -> None:
    for step in STEPS:
        ended = AGAIN["no node, or no image"]
        assert [again(of(argo, step), ended, retries) for retries in range(3)] == [True, False, False]


def test_engine_and_reports_agree(argo: Manifests) -> None:
    """A try whose failure is read as a wrong request or a bug was not tried again, and all others were."""
    for step in OF_A_RUN:
        for name, ended in (AGAIN | NEVER).items():
            end = insert_name(ended, step)
            node = {"type": "Pod", "phase": end.status, "message": end.message, "templateName": step}
            failure = failure_reason({**node, "hostNodeName": "n"})
            if failure is not None and end.message.startswith("main: "):
                final = failure.exit_code in (CONFIG, BUG)
                assert final != again(of(argo, step), end), f"{step}, {name}: {failure}"


def test_child_pod_retries_lost_shard(argo: Manifests) -> None:
    expression = of(argo, "child")
    assert [name for name, end in WAIT_AGAIN.items() if not again(expression, end)] == []
    assert [name for name, end in WAIT_NEVER.items() if again(expression, end)] == []


@cache
def _reasons() -> list[str]:
    """The fixed words of all that our steps may say when they end with 64: of every ConfigError in them."""
    reasons = []
    for path in sorted(Path(ROOT, "steps").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ConfigError" and node.args:
                parts = [item.value for item in ast.walk(node.args[0]) if isinstance(item, ast.Constant)]
                reasons.append(" ".join(str(item) for item in parts))
    return reasons


def test_own_refusals_are_never_retried() -> None:
    reasons = _reasons()
    assert len(reasons) > 50
    for step in STEPS:
        for words in reasons:
            ended = Ended("Failed", str(CONFIG), f"main: Error (exit code {CONFIG}): {PROGRAMS[step]}: {words}")
            assert not again(of(committed(), step), ended), words


@given(st.text(), st.sampled_from(STEPS), st.sampled_from([CONFIG, BUG]))
def test_text_never_causes_retry(words: str, step: str, code: int) -> None:
    message = (
        f"main: Error (exit code {code}): {format_exit_line(PROGRAMS[step], words)} evicted, exceeded its deadline"
    )
    assert not again(of(committed(), step), Ended("Failed", str(code), message))


@given(st.text(), st.sampled_from(STEPS), st.sampled_from([1, 2, 75, 76, 137, 143]))
def test_text_never_prevents_retry(words: str, step: str, code: int) -> None:
    line = format_exit_line(PROGRAMS[step], words)
    message = f"main: Error (exit code {code}): {line} workflow shutdown, exceeded its deadline"
    assert again(of(committed(), step), Ended("Failed", str(code), message))
