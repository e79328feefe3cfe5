"""The AGS tool and image for a sandbox: the mapping, the names, the tags."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.sandbox_spec import AGSSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.ags.control import ENVD_PORT

FIELD = "sandbox.ags.mapping"
NetworkMode = Literal["SANDBOX", "PUBLIC"]
"""The network mode, fixed per tool. SANDBOX reaches nothing."""
_NAME_LENGTH = 50
_READY_MS, _PROBE_MS, _PERIOD_MS, _FAILURES = 120_000, 3_000, 1_000, 100
ENVD_PATH = "/mnt/envd"
"""Mount path of the program envd, from the tool's volume."""


@dataclass(frozen=True)
class ServiceImage:
    """An image at the location from which the service pulls it."""

    name: str
    registry_type: str
    """enterprise, personal, custom or system."""


def network_mode(*, network: bool) -> NetworkMode:
    """Return the mode of a tool whose sandboxes reach the network, or nothing."""
    return "PUBLIC" if network else "SANDBOX"


def tool_name(spec: AGSSpec, image: str, mode: NetworkMode) -> str:
    """Return the tool's name for an image: the shared one of the mode, or with ``tool_per_image`` one per image.

    At most 50 letters, digits and dashes; a hash of image and mode in it keeps the names distinct.
    """
    if not spec.tool_per_image:
        return f"{spec.tool_prefix}-{mode.lower()}"
    digest = hashlib.sha256(json.dumps([image, mode]).encode()).hexdigest()[:12]
    last = re.sub(r"[^a-z0-9]+", "-", image.rpartition("/")[2].partition("@")[0].lower())
    room = _NAME_LENGTH - len(spec.tool_prefix) - len(digest) - 2
    readable = last[-room:].strip("-") if room > 0 else ""
    return "-".join(part for part in (spec.tool_prefix, readable, digest) if part)


def service_image(spec: AGSSpec, image: str, registry: str | None) -> ServiceImage:
    """Return the location of a row's image: by the mapping, else as it is. Raises ConfigError for a bad mapping."""
    entry = read_mapping(spec.mapping).get(image) if spec.mapping else None
    if entry is None:
        return ServiceImage(through_registry(image, registry), spec.registry_type)
    return ServiceImage(entry["tcr_image"], entry.get("image_registry_type") or spec.registry_type)


def read_mapping(file: str) -> dict[str, dict[str, Any]]:
    """Read a mapping of ``swe-argo ags sync`` or the guide's script: image -> {tcr_image, ...}. Raises ConfigError."""
    try:
        mapping = json.loads(Path(file).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", field=FIELD) from error
    entries = mapping if isinstance(mapping, dict) else {"": None}
    read: dict[str, Any] = {
        image: {"tcr_image": entry} if isinstance(entry, str) else entry for image, entry in entries.items()
    }
    if not all(isinstance(entry, dict) and isinstance(entry.get("tcr_image"), str) for entry in read.values()):
        raise ConfigError(f"{file} must be one JSON object of {{image: {{tcr_image: ...}}}}", field=FIELD)
    return read


def configuration(image: ServiceImage, *, cpus: float | None = None, memory_mb: int | None = None) -> dict[str, Any]:
    """Return the CustomConfiguration of a tool or of one start: it runs envd, as root without privileges.

    The service's documented default is privileged. envd comes with the tool, from a volume.
    """
    resources = {}
    if cpus is not None:
        resources["CPU"] = f"{cpus:g}"
    if memory_mb is not None:
        resources["Memory"] = f"{memory_mb}Mi"
    return {
        "Image": image.name,
        "ImageRegistryType": image.registry_type,
        "Command": ["/bin/bash", "-c"],
        "Args": [f"{ENVD_PATH} -port {ENVD_PORT}"],
        "Ports": [{"Name": "envd", "Port": ENVD_PORT, "Protocol": "TCP"}],
        "Probe": {
            "HttpGet": {"Path": "/health", "Port": ENVD_PORT, "Scheme": "HTTP"},
            "ReadyTimeoutMs": _READY_MS,
            "ProbeTimeoutMs": _PROBE_MS,
            "ProbePeriodMs": _PERIOD_MS,
            "SuccessThreshold": 1,
            "FailureThreshold": _FAILURES,
        },
        "SecurityContext": {"Privileged": False},
        **({"Resources": resources} if resources else {}),
    }


def tag_of(tool: dict[str, Any], key: str) -> str | None:
    """Return the value of a tool's tag."""
    return next((tag.get("Value") for tag in tool.get("Tags") or [] if tag.get("Key") == key), None)


def mode_of(tool: dict[str, Any]) -> str | None:
    """Return the network mode of a tool."""
    mode: str | None = (tool.get("NetworkConfiguration") or {}).get("NetworkMode")
    return mode


def find_tool(
    tools: list[dict[str, Any]], spec: AGSSpec, image: str, where: ServiceImage, mode: NetworkMode
) -> dict[str, Any] | None:
    """Return our tool among the account's, else with ``tool_per_image`` one whose tags name the image."""
    name = tool_name(spec, where.name, mode)
    for tool in tools:
        if tool.get("ToolName") == name:
            return tool
    if not spec.tool_per_image:
        return None
    return next(
        (
            tool
            for tool in tools
            if mode_of(tool) == mode and (tag_of(tool, "tcr_image") == where.name or tag_of(tool, "image") == image)
        ),
        None,
    )


def is_privileged(holder: dict[str, Any]) -> bool:
    """Return whether a tool or sandbox is privileged, as far as the service says."""
    context = (holder.get("CustomConfiguration") or {}).get("SecurityContext") or {}
    return context.get("Privileged") is True


def tool_problem(tool: dict[str, Any], mode: NetworkMode) -> str | None:
    """Return why a tool is unusable for sandboxes, or None."""
    name = f"tool {tool['ToolName']} of AGS"
    if (status := tool.get("Status")) != "ACTIVE":
        return f"{name} is {status}, not ACTIVE: {tool.get('StatusReason') or 'no reason is given'}"
    if mode_of(tool) != mode:
        return f"{name} has network mode {mode_of(tool)}, and {mode} is needed"
    if is_privileged(tool):
        return f"{name} makes privileged sandboxes: make it with SecurityContext.Privileged false"
    return None


def missing_tool(
    spec: AGSSpec, image: str, where: ServiceImage, mode: NetworkMode, *, region: str, selection: str = ""
) -> str:
    """Return the message about a missing tool of an image, with the command that creates it.

    ``selection``: words of its command line that choose the images.
    """
    chosen = selection or "DATASET"
    each = " --ags-tool-per-image" if spec.tool_per_image else ""
    return (
        f"AGS in region {region} has no tool {tool_name(spec, where.name, mode)} (network {mode}) for image {image}: "
        f"swe-argo ags sync {chosen}{each} makes it"
    )
