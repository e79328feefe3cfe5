"""A model's endpoint that pods of these tests reach, and all that a run with it leaves, to be searched for its key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from swe_argo.steps.store import open_store
from tests import solutions
from tests.argo.conftest import free_port
from tests.argo.pipeline import S3, Pipeline
from tests.model_server import ModelServer, Script, model_server
from tests.workflows.command import summary

KEY = "sk-tests-0123456789abcdef0123456789abcdef"
SECRET = "tinker-credentials"
KEPT = "workflows,workflowtasksets,workflowartifactgctasks,workflowtaskresults,pods,configmaps,events"
"""Kinds of objects that a run leaves, or passes on in."""


@contextmanager
def endpoint(script: Script, latency_s: float = 0.0) -> Iterator[ModelServer]:
    """A model server on the address of this machine that pods know, which wants KEY."""
    with model_server(script, key=KEY, latency_s=latency_s, host=S3[0], port=free_port(), keep=False) as server:
        yield server


def credentials(pipeline: Pipeline, **values: str) -> None:
    """Put these variables, and no others, into the Secret of models."""
    pipeline.kubectl("delete", "secret", SECRET, "--ignore-not-found")
    words = [f"--from-literal={name}={value}" for name, value in values.items()]
    pipeline.kubectl("create", "secret", "generic", SECRET, *words)


def usage(store: str, run: str) -> tuple[int, int, int, int]:
    """Calls, requests, tokens in and out, as the report adds them up."""
    total = summary(store, run).cost.usage
    return total.calls, total.requests, total.prompt_tokens, total.completion_tokens


def counted(server: ModelServer) -> tuple[int, int, int, int]:
    """The same, as the server counted them."""
    counts = server.counts
    return counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens


def titles(instances: Iterable[str]) -> list[str]:
    """The first line of each issue, by which a script knows who asks."""
    return [str(solutions.rows()[instance]["problem_statement"]).partition("\n")[0] for instance in instances]


def printed(pipeline: Pipeline, name: str, step: str) -> str:
    """What the pods of a step have printed, in all shards of this Workflow."""
    opened = open_store(pipeline.store)
    names = [entry for entry in opened.keys(f"logs/{name}-s") if f"-{step}-" in entry and entry.endswith("/main.log")]
    return b"".join(opened.get_many(names).values()).decode(errors="replace")


def find_text(pipeline: Pipeline, text: str) -> list[str]:
    """Where ``text`` is found: objects of the namespace, but its Secrets, and everything in its bucket, logs too."""
    places = []
    for item in json.loads(pipeline.kubectl("get", KEPT, "-o", "json"))["items"]:
        if text in json.dumps(item):
            places.append(f"{item['kind']} {item['metadata']['name']}")
    opened = open_store(pipeline.store)
    names = opened.keys("")
    return places + [name for name, data in opened.get_many(names).items() if text.encode() in data]
