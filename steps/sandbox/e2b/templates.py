"""The template for an image: from a mapping file, else named by image, agent and size."""

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
"""Characters of an image in a name: with the digits after them 50, which leaves 13 for the size."""
_OF_BUNDLE = 8
"""Digits of an agent's digest in a name. A sandbox's digest file has all of them and reveals another's files."""


@dataclass(frozen=True)
class WantedTemplate:
    """A template's content and the size of its sandboxes; None is the service's default size."""

    name: str
    image: str
    """The name by which it is pulled."""
    cpus: int | None
    memory_mb: int | None
    bundle: BundleMount | None = None
    """The agent's files that it also holds."""


def wanted_template(
    image: str,
    *,
    registry: str | None = None,
    cpus: float | None = None,
    memory_mb: int | None = None,
    bundle: BundleMount | None = None,
) -> WantedTemplate:
    """Return the template of an image and machine size, rounded as the service requires: whole cores, even MiB."""
    pulled = through_registry(image, registry)
    cores = whole_cores(cpus)
    memory = None if memory_mb is None else memory_mb + memory_mb % 2
    digest = bundle.digest if bundle else None
    name = template_name(pulled, cpus=cores, memory_mb=memory, bundle=digest)
    return WantedTemplate(name, pulled, cores, memory, bundle)


def whole_cores(cpus: float | None) -> int | None:
    """Return the cores rounded up; None is the service's default."""
    return None if cpus is None else max(1, math.ceil(cpus))


def template_name(
    image: str, *, cpus: int | None = None, memory_mb: int | None = None, bundle: str | None = None
) -> str:
    """Return the name of the template of an image of this size: letters, digits and dashes, at most 63.

    An image that is named with its digest has the digest in it, too. ``bundle``: the digest of an agent's files.
    """
    size = "".join(f"-{number}{unit}" for number, unit in ((cpus, "c"), (memory_mb, "m")) if number is not None)
    return f"{image_name(image, bundle)}{size}"


def image_name(image: str, bundle: str | None = None) -> str:
    """Return the common prefix, at most 50 characters, of an image's template names (with an agent's files)."""
    last = image.rpartition("/")[2].partition("@")[0].lower()
    agent = f"-{bundle.removeprefix('sha256:')[:_OF_BUNDLE]}" if bundle else ""
    readable = re.sub(r"[^a-z0-9]+", "-", last)[len(agent) - _READABLE :].strip("-")
    return f"{PREFIX}{readable}-{hashlib.sha256(image.encode()).hexdigest()[:12]}{agent}"


def name_without_size(name: str) -> str:
    """Return the ``image_name`` in a name. A digest may end in digits and a c, like cores, but in more digits."""
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
    """Return the template for a sandbox of an image. Raises ConfigError for an invalid mapping file."""
    mapped = read_mapping(spec.templates).get(image) if spec.templates else None
    return mapped or wanted_template(image, registry=registry, cpus=cpus, memory_mb=memory_mb, bundle=bundle).name


@dataclass(frozen=True)
class NeededTemplates:
    """A run's templates: ``mapped`` has image -> template by the file, ``wanted`` those of other images, each once."""

    mapped: dict[str, str]
    wanted: list[WantedTemplate]


def needed_templates(
    spec: SandboxSpec, images: Iterable[tuple[str, float | None, int | None]], bundle: BundleMount | None = None
) -> NeededTemplates:
    """Return the templates for ``images``, each with its task's cores and MiB as defaults. Raises ConfigError.

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
    # The service keeps each layer: templates with files, built last, find their image pulled.
    return NeededTemplates(mapped, [*plain.values(), *with_files.values()])


def read_mapping(file: str) -> dict[str, str]:
    """Read a mapping file (image -> template). Raises ConfigError."""
    try:
        mapping = json.loads(Path(file).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", field=FIELD) from error
    if not isinstance(mapping, dict) or not all(isinstance(name, str) and name for name in mapping.values()):
        raise ConfigError(f"{file} must be one JSON object of {{image: template}}", field=FIELD)
    return mapping
