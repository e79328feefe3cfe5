"""An agent program's files in a pod, by an image volume or an init container that copies them from their image.

The API server supports image volumes from Kubernetes 1.35 on, and from 1.31 with the feature ImageVolume; otherwise it
drops them from the pod, as a dry run shows. Both ways mount the files read-only at ``BUNDLE_PLACE``.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

from swe_argo.steps.bundles.image import COPIER
from swe_argo.steps.contracts.recipe import BUNDLE_PLACE
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.protocol import BundleMount

FileDelivery = Literal["image-volume", "copy"]
"""The way to provide the files in a pod."""
VOLUME = "agent-files"
"""Name of the volume, and of the init container that fills it."""
_COPIER = f"/{COPIER}"
"""The program in the image with the files that copies them."""
_FILES = "/.swe-argo/files"
"""Mount path of the volume in the init container, which the copier skips."""


def file_deliveries(namespace: NamespaceSettings) -> tuple[FileDelivery, ...]:
    """Return the ways to provide the files that the namespace's settings allow, the best first."""
    return ("image-volume", "copy") if namespace.agent_files == "auto" else (namespace.agent_files,)


def image_of(bundle: BundleMount) -> str:
    """Return the image with the files, by its digest. Raises ConfigError if there is none."""
    if bundle.image is None:
        raise ConfigError(
            "pods need the agent's files as an image: swe-argo agents push NAME IMAGE creates it for --agent-image",
            field="agent.image",
        )
    return bundle.image


def add_agent_files(
    pod: dict[str, Any], bundle: BundleMount, namespace: NamespaceSettings, way: FileDelivery
) -> dict[str, Any]:
    """Return a copy of a pod's manifest with the files mounted in its container.

    Raises ConfigError if the files have no image.
    """
    image = image_of(bundle)
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    box = spec["containers"][0]
    box["volumeMounts"].append({"name": VOLUME, "mountPath": BUNDLE_PLACE, "readOnly": True})
    if way == "image-volume":
        spec["volumes"].append({"name": VOLUME, "image": {"reference": image, "pullPolicy": "IfNotPresent"}})
        return pod
    spec["volumes"].append({"name": VOLUME, "emptyDir": {"sizeLimit": namespace.agent_files_size_limit}})
    spec["initContainers"] = [
        {
            "name": VOLUME,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": [_COPIER, "copy", "/", _FILES],
            "resources": box["resources"],  # it ends before the other starts, so the pod's request does not grow
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": VOLUME, "mountPath": _FILES}],
        }
    ]
    return pod


def has_agent_files(pod: dict[str, Any]) -> bool:
    """Return whether a pod as stored has the files: an API server drops an image volume's source if it is too old."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    return "image" in volumes.get(VOLUME, {}) or bool(pod["spec"].get("initContainers"))


def agent_image(pod: dict[str, Any]) -> str | None:
    """Return the image with the agent's files, if the pod has them."""
    for volume in pod["spec"].get("volumes") or []:
        if volume["name"] == VOLUME and "image" in volume:
            return str(volume["image"]["reference"])
    return next(
        (str(init["image"]) for init in pod["spec"].get("initContainers") or [] if init["name"] == VOLUME), None
    )
