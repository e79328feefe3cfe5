"""Preparation of an AGS account: image copies that it can pull, its sandbox tools, and the mapping of both."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.sandbox_spec import AGSSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox.ags.image_copies import copy_image, copy_name, require_skopeo
from swe_argo.steps.sandbox.ags.service import ask, is_code, list_all, service_failure
from swe_argo.steps.sandbox.ags.start import Pauses
from swe_argo.steps.sandbox.ags.tools import (
    ENVD_PATH,
    NetworkMode,
    ServiceImage,
    configuration,
    find_tool,
    read_mapping,
    tool_name,
    tool_problem,
)

ACTIVE_S = 900.0
"""Maximum seconds that a tool may be CREATING."""
_EXISTS = ("ResourceInUse.SandboxTool", "ResourceInUse")


@dataclass(frozen=True)
class SyncPlan:
    """The wanted images and tools. ``to``: registry and namespace of the copies; None: images are not copied."""

    table: AGSSpec
    images: list[str]
    modes: list[NetworkMode]
    mapping: Path
    to: str | None = None
    registry: str | None = None
    envd_image: str | None = None
    role_arn: str | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    platform: str = "linux/amd64"
    copies_at_a_time: int = 4

    def place_of(self, image: str) -> ServiceImage:
        """Return the location from which the service pulls an image."""
        name = copy_name(image, self.to) if self.to else through_registry(image, self.registry)
        return ServiceImage(name, self.table.registry_type)


@dataclass(frozen=True)
class WantedTool:
    """A tool with its initial image; the shared tool gets another image at every start."""

    name: str
    mode: NetworkMode
    image: str
    where: ServiceImage


@dataclass
class SyncResult:
    """The result of a sync, by name; ``failed``: image or tool -> reason."""

    copied: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def wanted_tools(plan: SyncPlan) -> list[WantedTool]:
    """Return the wanted tools: one per mode, or one per mode and image."""
    images = plan.images if plan.table.tool_per_image else plan.images[:1]
    return [
        WantedTool(tool_name(plan.table, plan.place_of(image).name, mode), mode, image, plan.place_of(image))
        for image in images
        for mode in plan.modes
    ]


def missing_tools(plan: SyncPlan) -> list[WantedTool]:
    """Return the wanted tools that the account lacks. Raises StepError."""
    tools = _list_tools()
    return [
        each for each in wanted_tools(plan) if find_tool(tools, plan.table, each.image, each.where, each.mode) is None
    ]


def sync(plan: SyncPlan, tell: Callable[[str], None]) -> SyncResult:
    """Copy missing images, create missing tools, wait until they are ACTIVE, and write the mapping as it grows.

    Resumable: a second call does only the rest. A failure of one item stops no other; a failure that concerns all is
    raised: ConfigError (no skopeo, no envd image, credentials), InfraError.
    """
    result = SyncResult()
    if plan.to:
        _copy_all(plan, result, tell)
        plan = replace(plan, images=[image for image in plan.images if image not in result.failed])
    _write_mapping(plan, plan.images, [])
    missing = missing_tools(plan)
    for number, each in enumerate(missing):
        tell(f"creating tools: {number:,} of {len(missing):,}")
        try:
            create_tool(plan, each)
            result.created.append(each.name)
        except StepError as error:
            if isinstance(error, ConfigError) and error.field == "sandbox.backend":
                raise
            result.failed[each.name] = error.reason
    tools = _wait_until_active(plan, result, tell)
    result.kept = [each.name for each in wanted_tools(plan) if each.name not in {*result.created, *result.failed}]
    _write_mapping(plan, plan.images, tools)
    return result


def create_tool(plan: SyncPlan, wanted: WantedTool) -> None:
    """Request a tool; accept one that exists by now. Raises StepError."""
    if plan.envd_image is None:
        raise ConfigError(
            "a tool needs envd, which answers in its sandboxes: name the image that holds /usr/bin/envd by "
            "--envd-image or AGS_ENVD_IMAGE",
            field="sandbox.backend",
        )
    parameters: dict[str, Any] = {
        "ToolName": wanted.name,
        "ToolType": "custom",
        "Description": "sandboxes of swe-argo",
        "NetworkConfiguration": {"NetworkMode": wanted.mode},
        "CustomConfiguration": configuration(wanted.where, cpus=plan.cpus, memory_mb=plan.memory_mb),
        "StorageMounts": [
            {
                "Name": "envd-storage",
                "MountPath": ENVD_PATH,
                "ReadOnly": True,
                "StorageSource": {
                    "Image": {
                        "Reference": plan.envd_image,
                        "ImageRegistryType": "personal",
                        "SubPath": "/usr/bin/envd",
                    }
                },
            }
        ],
        "Tags": [{"Key": "swe-argo", "Value": wanted.mode}, *_image_tags(plan, wanted)],
        # One for the tries of this call: for an earlier call's token the service would return a tool removed since.
        "ClientToken": f"swe-argo-{secrets.token_hex(20)}",
        **({"RoleArn": plan.role_arn} if plan.role_arn else {}),
    }
    try:
        ask("CreateSandboxTool", parameters)
    except TencentCloudSDKException as error:
        if is_code(error, _EXISTS):
            return
        failure = service_failure(error, FailureClass.SANDBOX_CREATE, f"making tool {wanted.name}")
        if is_code(error, ("MissingParameter.RoleArn", "InvalidParameterValue.RoleArn")):
            failure.reason += ": set TENCENTCLOUD_ROLE_ARN to a role that may pull from the registry"
        raise failure from error


def _image_tags(plan: SyncPlan, wanted: WantedTool) -> list[dict[str, str]]:
    if not plan.table.tool_per_image:
        return []
    return [{"Key": "image", "Value": wanted.image}, {"Key": "tcr_image", "Value": wanted.where.name}]


def _list_tools() -> list[dict[str, Any]]:
    return list(list_all("DescribeSandboxToolList", "SandboxToolSet", "listing the tools"))


def _copy_all(plan: SyncPlan, result: SyncResult, tell: Callable[[str], None]) -> None:
    require_skopeo()
    lock = threading.Lock()

    def copy(image: str) -> None:
        try:
            source = through_registry(image, plan.registry)
            is_new = copy_image(source, plan.place_of(image).name, plan.platform)
        except StepError as error:
            with lock:
                result.failed[image] = error.reason
            return
        with lock:
            (result.copied if is_new else result.there).append(image)
            done = len(result.copied) + len(result.there)
            _write_mapping(plan, [*result.copied, *result.there], [])
            tell(f"copying images: {done:,} of {len(plan.images):,}")

    with ThreadPoolExecutor(plan.copies_at_a_time) as pool:
        list(pool.map(copy, plan.images))


def _wait_until_active(plan: SyncPlan, result: SyncResult, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the account's tools once no wanted one is CREATING any more."""
    pauses = Pauses(longest_s=10.0, patience_s=ACTIVE_S)
    while True:
        tools = _list_tools()
        creating = []
        for each in wanted_tools(plan):
            tool = find_tool(tools, plan.table, each.image, each.where, each.mode)
            if each.name in result.failed:
                continue
            if tool is None or tool.get("Status") == "CREATING":  # a new one need not be listed at once
                creating.append(each.name)
            elif problem := tool_problem(tool, each.mode):
                result.failed[each.name] = problem
        if not creating:
            return tools
        tell(f"waiting for tools: {len(creating):,} are not ACTIVE yet")
        if not pauses.next():
            result.failed |= dict.fromkeys(creating, f"was not ACTIVE in {ACTIVE_S:g} s")
            return tools


def _write_mapping(plan: SyncPlan, images: list[str], tools: list[dict[str, Any]]) -> None:
    """Merge these images into the mapping file, which is replaced atomically."""
    mapping = read_mapping(str(plan.mapping)) if plan.mapping.exists() else {}
    for image in images:
        where = plan.place_of(image)
        entry = {"tcr_image": where.name, "image_registry_type": where.registry_type}
        found = {mode: find_tool(tools, plan.table, image, where, mode) for mode in plan.modes}
        named = {
            mode: {"tool_name": tool["ToolName"], "tool_id": tool["ToolId"]} for mode, tool in found.items() if tool
        }
        mapping[image] = {**entry, **({"tools": named} if named else {})}
    part = plan.mapping.with_name(f"{plan.mapping.name}.part")
    try:
        plan.mapping.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(mapping, indent=2, sort_keys=True) + "\n", "utf-8")
        part.replace(plan.mapping)
    except OSError as error:
        raise ConfigError(f"{plan.mapping} cannot be written: {error.strerror}", field="sandbox.ags.mapping") from error
