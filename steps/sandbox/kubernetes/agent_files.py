"""An agent program's files in a pod: a volume of their image, or an init container of that image that copies them.

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

Way = Literal["image-volume", "copy"]
"""The way in which the files come into a pod."""
VOLUME = "agent-files"
"""Name of the volume, and of the init container that fills it."""
_COPIER = f"/{COPIER}"
_FILES = "/.swe-argo/files"
"""Mount path of the volume in the init container: a folder that the copier leaves out."""


def ways(namespace: NamespaceSettings) -> tuple[Way, ...]:
    """Return the ways to try, the best first."""
    return ("image-volume", "copy") if namespace.agent_files == "auto" else (namespace.agent_files,)


def image_of(bundle: BundleMount) -> str:
    """Return the image with the files, by its digest. Raises ConfigError if there is none."""
    if bundle.image is None:
        raise ConfigError(
            "pods have an agent's files from an image: swe-argo agents push NAME IMAGE makes one for --agent-image",
            field="agent.image",
        )
    return bundle.image


def add_agent_files(pod: dict[str, Any], bundle: BundleMount, namespace: NamespaceSettings, way: Way) -> dict[str, Any]:
    """Return the pod with the files mounted in its container. Raises ConfigError if they have no image."""
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
            "resources": box["resources"],  # it is gone when the other starts: together they request no more
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": VOLUME, "mountPath": _FILES}],
        }
    ]
    return pod


def has_agent_files(pod: dict[str, Any]) -> bool:
    """Return whether the API server kept the volume with its source: an older one drops unknown sources."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
    return "image" in volumes.get(VOLUME, {}) or bool(pod["spec"].get("initContainers"))


def agent_image(pod: dict[str, Any]) -> str | None:
    """Return the image with the agent's files, if the pod has them."""
    for volume in pod["spec"].get("volumes") or []:
        if volume["name"] == VOLUME and "image" in volume:
            return str(volume["image"]["reference"])
    return next(
        (str(each["image"]) for each in pod["spec"].get("initContainers") or [] if each["name"] == VOLUME), None
    )
