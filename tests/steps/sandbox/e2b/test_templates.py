"""The names of templates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from swe_argo.steps.contracts.sandbox_spec import E2BSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.e2b.prices import hourly_price
from swe_argo.steps.sandbox.e2b.templates import (
    image_name,
    name_without_size,
    required_template,
    required_templates,
    template_name,
    template_of,
)

IMAGE = "swebench/sweb.eval.x86_64.django_1776_django-11099:latest"


def test_name_depends_on_image_and_size() -> None:
    names = [
        template_name(IMAGE),
        template_name(f"{IMAGE}@sha256:{'0' * 64}"),
        template_name(IMAGE, cpus=2),
        template_name(IMAGE, memory_mb=2048),
        template_name(IMAGE.replace("swebench/", "other/")),
    ]
    assert len(set(names)) == len(names)
    assert template_name(IMAGE) == names[0]
    assert all(re.fullmatch(r"swe-argo-[a-z0-9-]{1,54}", name) for name in names)
    assert "django-11099-latest" in names[0]


def test_name_ends_with_the_size() -> None:
    name = template_name(IMAGE, cpus=8, memory_mb=131072)
    assert name == f"{image_name(IMAGE)}-8c-131072m"
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
    assert template_of(E2BSpec(), IMAGE, registry="mirror.example/hub") != template_of(E2BSpec(), IMAGE)


@pytest.mark.parametrize("text", ["[]", "{", '{"image": 1}', '{"image": ""}'])
def test_invalid_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "templates.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"sandbox\.e2b\.templates"):
        template_of(E2BSpec(templates=str(file)), IMAGE)
