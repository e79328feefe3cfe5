"""Which template of the service holds an image: by a mapping file, else by a name made of image and size."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steps.contracts.images import through_registry
from steps.contracts.run_spec import E2BSpec, SandboxSpec
from steps.errors import ConfigError

FIELD = "sandbox.e2b.templates"
PREFIX = "swe-argo-"


@dataclass(frozen=True)
class WantedTemplate:
    """What a template holds, and how large its sandboxes are: None is the service's own size."""

    name: str
    image: str
    """As it is pulled."""
    cpus: int | None
    memory_mb: int | None


def wanted_template(
    image: str, *, registry: str | None = None, cpus: float | None = None, memory_mb: int | None = None
) -> WantedTemplate:
    """The template of an image with so much of a machine: whole cores, an even number of MiB, as the service has it."""
    pulled = through_registry(image, registry)
    cores = whole_cores(cpus)
    memory = None if memory_mb is None else memory_mb + memory_mb % 2
    return WantedTemplate(template_name(pulled, cpus=cores, memory_mb=memory), pulled, cores, memory)


def whole_cores(cpus: float | None) -> int | None:
    """As many as hold so much; None is the service's own number."""
    return None if cpus is None else max(1, math.ceil(cpus))


def template_name(image: str, *, cpus: int | None = None, memory_mb: int | None = None) -> str:
    """The name of the template of an image of this size: letters, digits and dashes, at most 63.

    An image that is named with its digest has the digest in it, too.
    """
    size = "".join(f"-{number}{unit}" for number, unit in ((cpus, "c"), (memory_mb, "m")) if number is not None)
    return f"{image_name(image)}{size}"


def image_name(image: str) -> str:
    """What the names of all templates of an image begin with: at most 50."""
    last = image.rpartition("/")[2].partition("@")[0].lower()
    readable = re.sub(r"[^a-z0-9]+", "-", last)[-28:].strip("-")
    return f"{PREFIX}{readable}-{hashlib.sha256(image.encode()).hexdigest()[:12]}"


def name_without_size(name: str) -> str:
    """The image's part of a template's name."""
    return re.sub(r"(-\d+c)?(-\d+m)?$", "", name)


def template_of(
    spec: E2BSpec,
    image: str,
    *,
    registry: str | None = None,
    cpus: float | None = None,
    memory_mb: int | None = None,
) -> str:
    """The template to make a sandbox of an image from. Raises ConfigError for a mapping file that is none."""
    mapped = read_mapping(spec.templates).get(image) if spec.templates else None
    return mapped or wanted_template(image, registry=registry, cpus=cpus, memory_mb=memory_mb).name


@dataclass(frozen=True)
class NeededTemplates:
    """What a run's images come to: ``mapped`` has image -> template by the file, ``wanted`` all others, each once."""

    mapped: dict[str, str]
    wanted: list[WantedTemplate]


def needed_templates(spec: SandboxSpec, images: Iterable[tuple[str, float | None, int | None]]) -> NeededTemplates:
    """``images``: each with the cores and the MiB of its task, used where the spec says nothing. Raises ConfigError."""
    mapping = read_mapping(spec.e2b.templates) if spec.e2b.templates else {}
    mapped, wanted = {}, {}
    for image, cpus, memory_mb in images:
        if image in mapping:
            mapped[image] = mapping[image]
        else:
            each = wanted_template(
                image, registry=spec.registry, cpus=spec.cpus or cpus, memory_mb=spec.memory_mb or memory_mb
            )
            wanted[each.name] = each
    return NeededTemplates(mapped, list(wanted.values()))


def read_mapping(file: str) -> dict[str, str]:
    """Image -> template, as the file has it. Raises ConfigError."""
    try:
        mapping = json.loads(Path(file).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", field=FIELD) from error
    if not isinstance(mapping, dict) or not all(isinstance(name, str) and name for name in mapping.values()):
        raise ConfigError(f"{file} must be one JSON object of {{image: template}}", field=FIELD)
    return mapping
