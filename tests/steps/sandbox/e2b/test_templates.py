"""Templates of E2B: their names, and their builds at the service by the real SDK."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.contracts.sandbox_spec import E2BSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.e2b import stored_templates
from swe_argo.steps.sandbox.e2b.stored_templates import (
    TemplateBuilds,
    build_templates,
    list_templates,
    remove_template,
    start_build,
)
from swe_argo.steps.sandbox.e2b.templates import (
    RequiredTemplate,
    hourly_price,
    image_name,
    name_without_size,
    required_template,
    required_templates,
    template_name,
)
from swe_argo.steps.sandbox.envd.machine import retrying
from swe_argo.steps.settings import settings
from tests.steps.sandbox.e2b.server import E2BServer
from tests.steps.sandbox.envd.lab import at_server

IMAGE = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"


def test_name_depends_on_image_and_size() -> None:
    others = (f"{IMAGE}@sha256:{'0' * 64}", IMAGE.replace("swebench/", "other/"))
    names = [template_name(image) for image in (IMAGE, *others)]
    names += [template_name(IMAGE, cpus=2), template_name(IMAGE, memory_mb=2048)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"swe-argo-[a-z0-9-]{1,54}", name) for name in names)
    assert "django-11099-latest" in names[0]


def test_name_ends_with_the_size() -> None:
    name = template_name(IMAGE, cpus=8, memory_mb=131072)
    assert len(template_name(f"x/{'long' * 30}:latest", cpus=64, memory_mb=131072)) <= 63
    assert {
        name_without_size(full_name) for full_name in (name, template_name(IMAGE), template_name(IMAGE, cpus=1))
    } == {image_name(IMAGE)}


def test_plain_names_are_stable() -> None:
    assert template_name(IMAGE) == "swe-argo-ngo-1776-django-11099-latest-462f28b6b0ea"
    assert template_name(IMAGE, cpus=2, memory_mb=4096) == "swe-argo-ngo-1776-django-11099-latest-462f28b6b0ea-2c-4096m"


def test_name_contains_the_bundle_digest() -> None:
    name = template_name(IMAGE, cpus=64, memory_mb=131072, bundle=f"sha256:0123abcd{'e' * 56}")
    assert name == "swe-argo-django-11099-latest-462f28b6b0ea-0123abcd-64c-131072m"
    assert len(name) <= 63
    assert name_without_size(name) == image_name(IMAGE, "sha256:0123abcd")
    assert len({image_name(IMAGE, digest) for digest in (None, "sha256:0123abcd", "sha256:0123abce")}) == 3


def test_digest_is_not_read_as_size() -> None:
    for name in (image_name(IMAGE, "sha256:1234567c"), "swe-argo-a-latest-12345678901c"):
        assert name_without_size(name) == name_without_size(f"{name}-2c-4096m") == name


def test_size_is_rounded_up() -> None:
    assert required_template(IMAGE, cpus=1.5, memory_mb=4095) == required_template(IMAGE, cpus=2, memory_mb=4096)
    assert required_template(IMAGE, cpus=0.5).cpus == 1


def test_price_is_of_the_rounded_size() -> None:
    # https://e2b.dev/docs/faq/calculate-sandbox-price: about 0.109 dollars for the service's own size
    assert hourly_price(E2BSpec(), None, None) == pytest.approx(0.1089)
    assert hourly_price(E2BSpec(vcpu_usd_per_hour=1, gib_usd_per_hour=10), 1.5, 4096) == 42


def test_needed_templates_are_unique(tmp_path: Path) -> None:
    file = tmp_path / "templates.json"
    file.write_text('{"mine:1": "my-template"}')
    spec = SandboxSpec.model_validate({"memory_mb": 4096, "e2b": {"templates": str(file)}})
    needs = required_templates(spec, [(IMAGE, 4, 1024), (IMAGE, 4, 2048), ("mine:1", None, None), ("b", None, None)])
    assert needs.mapped == {"mine:1": "my-template"}
    assert [(template.image, template.cpus, template.memory_mb) for template in needs.unmapped] == [
        (IMAGE, 4, 4096),
        ("b", None, 4096),
    ]


def test_mirror_has_its_own_template() -> None:
    assert required_template(IMAGE, registry="mirror.example/hub").name != required_template(IMAGE).name


@pytest.mark.parametrize("text", ["[]", "{", '{"image": 1}', '{"image": ""}'])
def test_invalid_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "templates.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"sandbox\.e2b\.templates"):
        required_templates(SandboxSpec.model_validate({"e2b": {"templates": str(file)}}), [])


# -- builds


@pytest.fixture
def server(tmp_path: Path) -> Iterator[E2BServer]:
    server = E2BServer(tmp_path / "images", {})
    for number in range(6):
        (tmp_path / "images" / f"rows__{number}:1").mkdir(parents=True)
    with at_server(server, tmp_path / "home", [settings.cache_clear]):
        yield server


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

    templates = templates_of(0, 1, 2, 3, cpus=4, memory_mb=8192)
    progress = build_templates(templates, tell, poll_s=0.02, at_a_time=2)
    assert (set(progress.built), progress.failed, progress.existing) == (set(templates), {}, [])
    assert [count for count, _ in progress_reports] == [1, 2, 3, 4]
    assert server.control.templates.most_at_a_time == 2
    stored = list_templates()
    built = [stored[template.name] for template in templates]
    assert {(template.state, template.cpus, template.memory_mb) for template in built} == {("ready", 4, 8192)}


def test_running_build_is_awaited(server: E2BServer) -> None:
    server.faults.build_seconds = 1.0
    start_build(templates_of(0)[0])
    assert build(templates_of(0)).built == templates_of(0)
    assert len(server.control.templates.builds) == 1


def test_abandoned_build_is_restarted(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.unbegun_builds = 100
    with pytest.raises(InfraError):
        start_build(templates_of(0)[0])
    server.faults.unbegun_builds = 0
    assert list_templates()[templates_of(0)[0].name].state == "waiting"
    monkeypatch.setattr(stored_templates, "ABANDONED_S", 0.2)
    assert build(templates_of(0)).built == templates_of(0)


def test_failed_build_names_the_reason(server: E2BServer) -> None:
    progress = build([*templates_of(0), *templates_of(99), *templates_of(1)])
    assert set(progress.built) == set(templates_of(0, 1))
    assert progress.failed == {templates_of(99)[0]: "image rows/99:1 cannot be pulled: manifest unknown"}
    (server.machines.images / "rows__99:1").mkdir()
    again = build(templates_of(0, 99))
    assert (again.existing, again.built) == (templates_of(0), templates_of(99))
    assert len(server.control.templates.builds) == 4


def test_refused_build_fails_alone(server: E2BServer) -> None:
    server.faults.build_statuses.append(400)
    progress = build(templates_of(0, 1))
    assert progress.built == templates_of(1)
    assert "400: not now" in progress.failed[templates_of(0)[0]]


def test_builds_wait_for_the_plan_limit(server: E2BServer) -> None:
    server.faults.builds_at_a_time = 2
    server.faults.build_seconds = 1.0
    progress = build(templates_of(0, 1, 2))
    assert len(progress.built) == 3
    assert server.control.templates.most_at_a_time == 2


def test_silent_service_ends_the_builds(server: E2BServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_templates, "retrying", lambda attempts: retrying(attempts=attempts, first_s=0.01))
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
    assert server.control.templates.builds[-1].registry == {"type": "registry", "username": "me", "password": "secret"}


def test_remove_template_is_idempotent(server: E2BServer) -> None:
    build(templates_of(0))
    stored = list_templates()[templates_of(0)[0].name]
    remove_template(stored)
    remove_template(stored)
    assert list_templates() == {}
