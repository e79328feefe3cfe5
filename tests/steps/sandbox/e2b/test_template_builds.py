"""Templates built at the service, by the real SDK, against a server that speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.e2b import template_builds
from swe_argo.steps.sandbox.e2b.stored_templates import list_templates, remove_template, start_build
from swe_argo.steps.sandbox.e2b.template_builds import TemplateBuilds, build_templates
from swe_argo.steps.sandbox.e2b.templates import RequiredTemplate, required_template
from swe_argo.steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BServer]:
    server = E2BServer(tmp_path / "images", {})
    for number in range(6):
        (tmp_path / "images" / f"rows__{number}:1").mkdir(parents=True)
    with server.running():
        for name, value in {**server.variables, "SWE_ARGO_HOME": str(tmp_path / "home")}.items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()
        yield server
    settings.cache_clear()


def templates_of(*numbers: int, **size: Any) -> list[RequiredTemplate]:
    return [required_template(f"rows/{number}:1", **size) for number in numbers]


def build(templates: list[RequiredTemplate], **options: Any) -> TemplateBuilds:
    return build_templates(templates, lambda *_: None, poll_s=0.02, **options)


def test_builds_keep_size_and_limit(server: E2BServer) -> None:
    server.faults.build_seconds = 1.0  # the second begins before the first has ended
    progress_reports: list[tuple[int, RequiredTemplate]] = []

    def tell(progress: TemplateBuilds, finished: RequiredTemplate | None, seconds: float) -> None:
        if finished:
            progress_reports.append((progress.finished_count, finished))
            assert seconds > 0
            assert progress.remaining_s is not None

    templates = templates_of(0, 1, 2, 3, 4, 5, cpus=4, memory_mb=8192)
    progress = build_templates(templates, tell, poll_s=0.02, at_a_time=2)
    assert (set(progress.built), progress.failed, progress.existing) == (set(templates), {}, [])
    assert [count for count, _ in progress_reports] == [1, 2, 3, 4, 5, 6]
    assert server.control.templates.most_at_a_time == 2
    stored = list_templates()
    assert {(stored[one.name].state, stored[one.name].cpus, stored[one.name].memory_mb) for one in templates} == {
        ("ready", 4, 8192)
    }


def test_existing_template_is_kept(server: E2BServer) -> None:
    build(templates_of(0, 1))
    progress = build(templates_of(0, 1, 2))
    assert (progress.existing, progress.built) == (templates_of(0, 1), templates_of(2))
    assert len(server.control.templates.builds) == 3


def test_running_build_is_awaited(server: E2BServer) -> None:
    server.faults.build_seconds = 3.0
    start_build(templates_of(0)[0])
    assert build(templates_of(0)).built == templates_of(0)
    assert len(server.control.templates.builds) == 1


def test_abandoned_build_is_restarted(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.unbegun_builds = 100
    with pytest.raises(InfraError):
        start_build(templates_of(0)[0])
    server.faults.unbegun_builds = 0
    assert list_templates()[templates_of(0)[0].name].state == "waiting"
    monkeypatch.setattr(template_builds, "ABANDONED_S", 0.2)
    assert build(templates_of(0)).built == templates_of(0)


def test_failed_build_names_the_reason(server: E2BServer) -> None:
    progress = build([*templates_of(0), *templates_of(99), *templates_of(1)])
    assert progress.built == templates_of(0, 1)
    assert progress.failed == {templates_of(99)[0]: "image rows/99:1 cannot be pulled: manifest unknown"}
    (server.machines.images / "rows__99:1").mkdir()
    assert build(templates_of(0, 99)).built == templates_of(99)


def test_refused_build_fails_alone(server: E2BServer) -> None:
    server.faults.build_statuses.append(400)
    progress = build(templates_of(0, 1))
    assert progress.built == templates_of(1)
    assert "400: not now" in progress.failed[templates_of(0)[0]]


def test_builds_wait_for_the_plan_limit(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.builds_at_a_time = 2
    server.faults.build_seconds = 1.0
    progress = build(templates_of(0, 1, 2, 3, 4, 5))
    assert len(progress.built) == 6
    assert server.control.templates.most_at_a_time == 2


def test_silent_service_ends_the_builds(server: E2BServer) -> None:
    server.faults.build_statuses.extend([500] * 100)
    with pytest.raises(InfraError, match="requesting a build of template"):
        build(templates_of(0, 1, 2, 3, 4, 5))
    assert len(server.faults.build_statuses) > 0


def test_registry_credentials_are_sent(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWE_ARGO_REGISTRY_USERNAME", "me")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="both or neither"):
        build(templates_of(0))
    monkeypatch.setenv("SWE_ARGO_REGISTRY_PASSWORD", "secret")
    settings.cache_clear()
    build(templates_of(0))
    assert server.control.templates.builds[-1].registry == {
        "type": "registry",
        "username": "me",
        "password": "secret",
    }


def test_remove_template_is_idempotent(server: E2BServer) -> None:
    build(templates_of(0))
    stored = list_templates()[templates_of(0)[0].name]
    remove_template(stored)
    remove_template(stored)
    assert list_templates() == {}
