"""Diagnosis of the AGS account."""

from __future__ import annotations

from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import StepError
from swe_argo.steps.sandbox.ags.service import region, service_failure
from swe_argo.steps.sandbox.ags.start import read_quota
from swe_argo.steps.sandbox.diagnosis import Diagnosis
from swe_argo.steps.settings import settings


def diagnose(_spec: SandboxSpec) -> Diagnosis:
    """Test the credentials by reading the quota. Never raises."""
    own = settings()
    if own.tencentcloud_secret_id is None or own.tencentcloud_secret_key is None:
        return Diagnosis(
            None,
            "no credentials are set",
            "set TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY to use sandboxes of AGS",
        )
    try:
        quota = read_quota()
    except TencentCloudSDKException as error:
        failure = service_failure(error, FailureClass.SANDBOX_CREATE, "reading the quota")
        return Diagnosis(False, failure.reason.removeprefix("sandbox.backend: "))
    except StepError as error:
        return Diagnosis(False, error.reason)
    usage = f"; {quota.used} of {quota.most} sandboxes in use" if quota else ""
    return Diagnosis(True, f"region {region()} accepts the credentials{usage}")
