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
from swe_argo.steps.sandbox.e2b.templates import WantedTemplate, wanted_template
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


def wanted(*numbers: int, **size: Any) -> list[WantedTemplate]:
    return [wanted_template(f"rows/{number}:1", **size) for number in numbers]


def build(each: list[WantedTemplate], **options: Any) -> TemplateBuilds:
    return build_templates(each, lambda *_: None, poll_s=0.02, **options)


def test_what_is_missing_is_built_in_the_size_that_is_asked_for_and_no_more_at_a_time(server: E2BServer) -> None:
    server.faults.build_seconds = 1.0  # the second begins before the first has ended
    told: list[tuple[int, WantedTemplate]] = []

    def tell(progress: TemplateBuilds, finished: WantedTemplate | None, seconds: float) -> None:
        if finished:
            told.append((progress.done, finished))
            assert seconds > 0
            assert progress.seconds_left is not None

    each = wanted(0, 1, 2, 3, 4, 5, cpus=4, memory_mb=8192)
    progress = build_templates(each, tell, poll_s=0.02, at_a_time=2)
    assert (set(progress.built), progress.failed, progress.there) == (set(each), {}, [])
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6]
    assert server.control.templates.most_at_a_time == 2
    stored = list_templates()
    assert {(stored[one.name].state, stored[one.name].cpus, stored[one.name].memory_mb) for one in each} == {
        ("ready", 4, 8192)
    }


def test_what_is_there_is_not_built_again(server: E2BServer) -> None:
    build(wanted(0, 1))
    progress = build(wanted(0, 1, 2))
    assert (progress.there, progress.built) == (wanted(0, 1), wanted(2))
    assert len(server.control.templates.builds) == 3


def test_what_another_builds_is_waited_for(server: E2BServer) -> None:
    server.faults.build_seconds = 3.0
    start_build(wanted(0)[0])
    assert build(wanted(0)).built == wanted(0)
    assert len(server.control.templates.builds) == 1


def test_a_build_that_was_asked_for_and_never_begun_is_begun_again(
    server: E2BServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults.unbegun_builds = 100
    with pytest.raises(InfraError):
        start_build(wanted(0)[0])
    server.faults.unbegun_builds = 0
    assert list_templates()[wanted(0)[0].name].state == "waiting"
    monkeypatch.setattr(template_builds, "ABANDONED_S", 0.2)
    assert build(wanted(0)).built == wanted(0)


def test_one_that_fails_names_image_and_reason_and_the_others_go_on(server: E2BServer) -> None:
    progress = build([*wanted(0), *wanted(99), *wanted(1)])
    assert progress.built == wanted(0, 1)
    assert progress.failed == {wanted(99)[0]: "image rows/99:1 cannot be pulled: manifest unknown"}
    (server.machines.images / "rows__99:1").mkdir()
    assert build(wanted(0, 99)).built == wanted(99)


def test_one_that_is_refused_fails_alone(server: E2BServer) -> None:
    server.faults.build_statuses.append(400)
    progress = build(wanted(0, 1))
    assert progress.built == wanted(1)
    assert "400: not now" in progress.failed[wanted(0)[0]]


def test_more_than_the_plan_takes_wait_for_those_that_run(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.builds_at_a_time = 2
    server.faults.build_seconds = 1.0
    progress = build(wanted(0, 1, 2, 3, 4, 5))
    assert len(progress.built) == 6
    assert server.control.templates.most_at_a_time == 2


def test_a_service_that_does_not_answer_ends_it(server: E2BServer) -> None:
    server.faults.build_statuses.extend([500] * 100)
    with pytest.raises(InfraError, match="asking for template"):
        build(wanted(0, 1, 2, 3, 4, 5))
    assert len(server.faults.build_statuses) > 0


def test_credentials_of_a_private_registry_go_to_the_service(
    server: E2BServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_ARGO_REGISTRY_USERNAME", "me")
    settings.cache_clear()
    with pytest.raises(ConfigError, match="both, or neither"):
        build(wanted(0))
    monkeypatch.setenv("SWE_ARGO_REGISTRY_PASSWORD", "secret")
    settings.cache_clear()
    build(wanted(0))
    assert server.control.templates.builds[-1].registry == {
        "type": "registry",
        "username": "me",
        "password": "secret",
    }


def test_a_template_is_removed_and_twice_is_once(server: E2BServer) -> None:
    build(wanted(0))
    stored = list_templates()[wanted(0)[0].name]
    remove_template(stored)
    remove_template(stored)
    assert list_templates() == {}
