"""Backend ags: one sandbox of Tencent Cloud Agent Sandbox each, with the row's image given at its start."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox.ags import snapshots
from swe_argo.steps.sandbox.ags.control import AGSControl
from swe_argo.steps.sandbox.ags.instances import stop_named
from swe_argo.steps.sandbox.ags.service import (
    FULL,
    NO_IMAGE,
    NO_TOOL,
    REFUSED,
    account_id,
    is_code,
    is_transient,
    list_all,
    region,
    service_failure,
)
from swe_argo.steps.sandbox.ags.start import Pauses, start_instance, wait_until_running
from swe_argo.steps.sandbox.ags.tools import (
    NetworkMode,
    ServiceImage,
    configuration,
    find_tool,
    is_privileged,
    missing_tool,
    network_mode,
    service_image,
    tool_name,
)
from swe_argo.steps.sandbox.envd.machine import EnvdMachine, EnvdSandbox
from swe_argo.steps.sandbox.envd.orphans import metadata_of
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest

SHORTEST_LIFE_S = 30.0
"""The service's minimum."""


def connect(spec: SandboxSpec) -> AGSBackend:
    """Connect to the account of the environment. Raises ConfigError without credentials."""
    account_id()
    return AGSBackend(spec)


class AGSBackend:
    """Makes and removes sandboxes."""

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec

    def create(self, request: SandboxRequest) -> EnvdSandbox:
        """Create a sandbox that ends by itself after ``deadline_s``, or earlier at the account's limit.

        Raises ConfigError (no such tool or image, refused credentials, a tool whose network or rights differ from the
        request), InfraError (SANDBOX_CREATE: no place, no answer).
        """
        table = self._spec.ags
        mode = network_mode(network=request.network)
        image = service_image(table, request.image, request.registry)
        life_s = max(SHORTEST_LIFE_S, min(request.deadline_s, table.longest_life_s))
        parameters: dict[str, Any] = {
            "ToolName": tool_name(table, image.name, mode),
            "Timeout": f"{math.ceil(life_s)}s",
            "AuthMode": "TOKEN",
            "Metadata": [{"Name": key, "Value": value} for key, value in metadata_of(request).items()],
        }
        if not table.tool_per_image:
            parameters["CustomConfiguration"] = configuration(image, cpus=request.cpus, memory_mb=request.memory_mb)
        if request.snapshot:
            parameters["SnapshotId"] = request.snapshot
        try:
            instance, began = self._start(parameters, request, image, mode)
        except BaseException as error:
            if not _has_refused(error):  # a sandbox may exist although its answer was lost
                with suppress(StepError):
                    stop_named(request.name)
            if isinstance(error, TencentCloudSDKException):
                raise _refused(error, request, image) from error
            raise
        running = wait_until_running(instance, request.name)
        control = AGSControl(running["InstanceId"])
        try:
            _check_confinement(running, request)
            control.client()
        except BaseException:
            with suppress(StepError):
                control.kill()
            raise
        machine = Machine(
            backend="ags",
            image=request.image,
            image_digest=request.image.partition("@")[2] or None,
            isolation="microvm",
            network=request.network,
            cpus=request.cpus,
            memory_mb=request.memory_mb,
            usd_per_hour=self._spec.ags.usd_per_hour,
        )
        transport = EnvdMachine(control, life_s=life_s, began=began, is_cut=life_s < request.deadline_s)
        return JobSandbox(machine, transport, transport.stream_exec)

    def destroy(self, sandbox: Sandbox) -> None:
        """Remove the sandbox. Raises InfraError if the service fails."""
        assert isinstance(sandbox, JobSandbox)
        sandbox.transport.kill()

    def snapshot(self, sandbox: Sandbox, name: str) -> str:
        """Take a snapshot, see ``Snapshots``."""
        assert isinstance(sandbox, JobSandbox)
        return snapshots.take_snapshot(sandbox.transport.sandbox_id, name)

    def remove_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot, see ``Snapshots``."""
        snapshots.remove_snapshot(snapshot)

    def _start(
        self, parameters: dict[str, Any], request: SandboxRequest, image: ServiceImage, mode: NetworkMode
    ) -> tuple[dict[str, Any], float]:
        """Start an instance by the tool of our name, or by one whose tags match."""
        pauses = Pauses()
        name = f"{request.name} {request.snapshot}" if request.snapshot else request.name
        try:
            return start_instance(parameters, name, pauses)
        except TencentCloudSDKException as error:
            if not is_code(error, NO_TOOL):
                raise
            tools = list(list_all("DescribeSandboxToolList", "SandboxToolSet", "listing the tools"))
            tool = find_tool(tools, self._spec.ags, request.image, image, mode)
            if tool is None:
                raise ConfigError(
                    missing_tool(self._spec.ags, request.image, image, mode, region=region()),
                    field="sandbox.backend",
                    failure_class=FailureClass.IMAGE_MISSING,
                    detail=str(error),
                ) from error
            named = {**parameters, "ToolName": tool["ToolName"]}
            return start_instance(named, f"{name} {tool['ToolName']}", pauses)


def _has_refused(error: BaseException) -> bool:
    """Return whether the service made nothing, by its own word."""
    return isinstance(error, StepError) or (isinstance(error, TencentCloudSDKException) and not is_transient(error))


def _check_confinement(instance: dict[str, Any], request: SandboxRequest) -> None:
    """Raise ConfigError if the sandbox is not as requested, because its tool differs."""
    mode = instance.get("NetworkMode")
    tool = instance.get("ToolName")
    if not request.network and mode not in (None, "SANDBOX"):
        raise ConfigError(
            f"tool {tool} gives its sandboxes network {mode}, and {request.name} must reach nothing: "
            "its network mode must be SANDBOX",
            field="sandbox.backend",
        )
    if is_privileged(instance):
        raise ConfigError(
            f"tool {tool} makes privileged sandboxes: make it with SecurityContext.Privileged false",
            field="sandbox.backend",
        )


def _refused(error: TencentCloudSDKException, request: SandboxRequest, image: ServiceImage) -> StepError:
    if request.snapshot and not is_transient(error) and not is_code(error, (*FULL, *REFUSED)):
        return ConfigError(
            f"AGS makes no sandbox from snapshot {request.snapshot} ({error.code}: {error.message})",
            field="sandbox.group_from_snapshot",
            detail=str(error),
        )
    if is_code(error, NO_IMAGE):
        return ConfigError(
            f"AGS in region {region()} cannot take {image.name} ({image.registry_type}) for image {request.image} "
            f"({error.code}: {error.message}): swe-argo ags sync copies it to a registry that it can pull from",
            field=f"image {request.image}",
            failure_class=FailureClass.IMAGE_MISSING,
            detail=str(error),
        )
    return service_failure(error, FailureClass.SANDBOX_CREATE, f"making sandbox {request.name}")
