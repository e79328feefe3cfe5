"""Which template of the service holds an image: by a mapping file, else by a name of image, agent and size."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.sandbox_spec import E2BSpec, SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import BundleMount

FIELD = "sandbox.e2b.templates"
PREFIX = "swe-argo-"
_READABLE = 28
"""Letters of an image in a name: with the digits behind them 50, which leaves 13 for the size."""
_OF_BUNDLE = 8
"""Digits of an agent's digest there. A sandbox's own mark has them all: one that were another's is seen by that."""


@dataclass(frozen=True)
class WantedTemplate:
    """What a template holds, and how large its sandboxes are: None is the service's own size."""

    name: str
    image: str
    """As it is pulled."""
    cpus: int | None
    memory_mb: int | None
    bundle: BundleMount | None = None
    """An agent's files that it holds, too."""


def wanted_template(
    image: str,
    *,
    registry: str | None = None,
    cpus: float | None = None,
    memory_mb: int | None = None,
    bundle: BundleMount | None = None,
) -> WantedTemplate:
    """The template of an image with so much of a machine: whole cores, an even number of MiB, as the service has it."""
    pulled = through_registry(image, registry)
    cores = whole_cores(cpus)
    memory = None if memory_mb is None else memory_mb + memory_mb % 2
    digest = bundle.digest if bundle else None
    name = template_name(pulled, cpus=cores, memory_mb=memory, bundle=digest)
    return WantedTemplate(name, pulled, cores, memory, bundle)


def whole_cores(cpus: float | None) -> int | None:
    """As many as hold so much; None is the service's own number."""
    return None if cpus is None else max(1, math.ceil(cpus))


def template_name(
    image: str, *, cpus: int | None = None, memory_mb: int | None = None, bundle: str | None = None
) -> str:
    """The name of the template of an image of this size: letters, digits and dashes, at most 63.

    An image that is named with its digest has the digest in it, too. ``bundle``: the digest of an agent's files.
    """
    size = "".join(f"-{number}{unit}" for number, unit in ((cpus, "c"), (memory_mb, "m")) if number is not None)
    return f"{image_name(image, bundle)}{size}"


def image_name(image: str, bundle: str | None = None) -> str:
    """What the names of all templates of an image, or of an image with an agent's files, begin with: at most 50."""
    last = image.rpartition("/")[2].partition("@")[0].lower()
    agent = f"-{bundle.removeprefix('sha256:')[:_OF_BUNDLE]}" if bundle else ""
    readable = re.sub(r"[^a-z0-9]+", "-", last)[len(agent) - _READABLE :].strip("-")
    return f"{PREFIX}{readable}-{hashlib.sha256(image.encode()).hexdigest()[:12]}{agent}"


def name_without_size(name: str) -> str:
    """What ``image_name`` made of it. A digest may end in digits and a c, as cores do, but in more of them."""
    return re.sub(r"(-\d{1,4}c)?(-\d+m)?$", "", name)


def template_of(
    spec: E2BSpec,
    image: str,
    *,
    registry: str | None = None,
    cpus: float | None = None,
    memory_mb: int | None = None,
    bundle: BundleMount | None = None,
) -> str:
    """The template to make a sandbox of an image from. Raises ConfigError for a mapping file that is none."""
    mapped = read_mapping(spec.templates).get(image) if spec.templates else None
    return mapped or wanted_template(image, registry=registry, cpus=cpus, memory_mb=memory_mb, bundle=bundle).name


@dataclass(frozen=True)
class NeededTemplates:
    """What a run's images come to: ``mapped`` has image -> template by the file, ``wanted`` all others, each once."""

    mapped: dict[str, str]
    wanted: list[WantedTemplate]


def needed_templates(
    spec: SandboxSpec, images: Iterable[tuple[str, float | None, int | None]], bundle: BundleMount | None = None
) -> NeededTemplates:
    """``images``: each with the cores and the MiB of its task, used where the spec says nothing. Raises ConfigError.

    With ``bundle`` an agent has sandboxes with these files; tests run in those without, as they do for every agent.
    """
    mapping = read_mapping(spec.e2b.templates) if spec.e2b.templates else {}
    mapped, plain, with_files = {}, {}, {}
    for image, cpus, memory_mb in images:
        if image in mapping:
            mapped[image] = mapping[image]
            continue
        cores, memory = spec.cpus or cpus, spec.memory_mb or memory_mb
        wanted = partial(wanted_template, image, registry=spec.registry, cpus=cores, memory_mb=memory)
        each = wanted()
        plain[each.name] = each
        if bundle:
            each = wanted(bundle=bundle)
            with_files[each.name] = each
    # The service keeps each layer: those with files, built last, find their image pulled.
    return NeededTemplates(mapped, [*plain.values(), *with_files.values()])


def read_mapping(file: str) -> dict[str, str]:
    """Image -> template, as the file has it. Raises ConfigError."""
    try:
        mapping = json.loads(Path(file).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", field=FIELD) from error
    if not isinstance(mapping, dict) or not all(isinstance(name, str) and name for name in mapping.values()):
        raise ConfigError(f"{file} must be one JSON object of {{image: template}}", field=FIELD)
    return mapping
