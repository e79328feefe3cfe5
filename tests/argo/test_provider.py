"""Sandboxes at a provider, made by the pods of the steps: a server that speaks E2B's protocol, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.ids import store_id
from swe_argo.steps.datasets import mini
from swe_argo.steps.datasets.mini.forms import image_by_id
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.local import bubblewrap
from tests.argo.conftest import PROVIDER, free_port
from tests.argo.models import find_text
from tests.argo.pipeline import S3, Pipeline
from tests.argo.undisturbed import RunOutcome, assert_same_outcome, local
from tests.steps.sandbox.e2b.server import API_KEY, E2BServer
from tests.workflows.command import QUICK, ids, summary

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))

AGENT_S = 600
"""So that a sandbox of it may live as long as the server allows."""


@pytest.fixture
def server(pipeline: Pipeline, tmp_path: Path) -> Iterator[E2BServer]:
    """The server, with the images of mini as templates, and the Secret of the account."""
    images = {name: image for name, image in image_by_id("mini").items() if name in QUICK}
    mini.prepare(tmp_path / "images", images, "mini")
    templates = {template_name(image): image for image in images.values()}
    server = E2BServer(tmp_path / "images", templates, host=S3[0], port=free_port())
    with server.running():
        words = [f"--from-literal={name}={value}" for name, value in server.variables.items()]
        pipeline.kubectl("create", "secret", "generic", PROVIDER, *words)
        try:
            yield server
        finally:
            pipeline.kubectl("delete", "secret", PROVIDER)


def test_provider_run_has_local_verdicts(pipeline: Pipeline, server: E2BServer, tmp_path: Path) -> None:
    run = "r-provider"
    of_run = {"swe-argo": "swe-argo", "run": run, "name": "sb-lost", "store": store_id(pipeline.store)}
    template = next(iter(server.machines.templates))
    server.machines.create(template, 3000, of_run, network=False)  # as by a pod whose node went away
    bystander = server.machines.create(template, 3000, {**of_run, "run": "other"}, network=False)
    spec = {"select": {"instance_ids": QUICK}, "agent": {"timeout_s": AGENT_S}}
    name = pipeline.submit(run, agent="gold", backend="e2b", spec=spec)
    ruler = local(tmp_path / "local", run, "--agent", "gold", "--agent-timeout", str(AGENT_S), *ids(*QUICK))
    pipeline.succeeds(name)
    assert summary(pipeline.store, run).headline.resolved == len(QUICK), pipeline.describe(name)
    assert_same_outcome(RunOutcome.of(pipeline.store, run), ruler)
    assert len(server.control.creates) >= len(QUICK)
    assert [machine.number for machine in server.machines.list_all()] == [bystander.number]
    assert pipeline.sandboxes() == []
    assert find_text(pipeline, API_KEY) == []
