"""Snapshots from which sandboxes start, by the service's Runtime Snapshot API (a preview)."""

from __future__ import annotations

from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.sandbox.ags.service import call_service, is_code, list_all, request_action, service_failure

NO_SNAPSHOT = ("ResourceNotFound.SandboxSnapshot",)


def take_snapshot(instance_id: str, name: str) -> str:
    """Take a snapshot of a running sandbox's files, not its processes; return its id.

    Raises InfraError if the snapshot fails, StepError if the service fails.
    """
    doing = f"taking a snapshot of sandbox {instance_id}"
    parameters = {"InstanceId": instance_id, "SnapshotName": name, "Memory": False, "ClientToken": name}
    snapshot = call_service("CreateSandboxSnapshot", parameters, doing).get("Snapshot") or {}
    if snapshot.get("Status", "ACTIVE") != "ACTIVE" or not snapshot.get("SnapshotId"):
        raise InfraError(FailureClass.SANDBOX_CREATE, f"{doing}: {snapshot.get('StatusReason') or 'no reason given'}")
    return str(snapshot["SnapshotId"])


def remove_snapshot(snapshot: str) -> None:
    """Remove a snapshot by id or name. Idempotent. Raises StepError if the service fails."""
    doing = f"removing snapshot {snapshot}"
    for item in list(list_all("DescribeSandboxSnapshotList", "SnapshotSet", doing)):
        if snapshot not in (item.get("SnapshotId"), item.get("SnapshotName")) or item.get("Status") != "ACTIVE":
            continue
        try:
            request_action("DeleteSandboxSnapshot", {"SnapshotId": item["SnapshotId"]})
        except TencentCloudSDKException as error:
            if not is_code(error, NO_SNAPSHOT):
                raise service_failure(error, FailureClass.SANDBOX_LOST, doing) from error
