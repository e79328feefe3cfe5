"""API requests for sandboxes, whose failures count as SANDBOX_CREATE."""

from __future__ import annotations

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.kube.client import ApiRequests

_REQUESTS = ApiRequests(FailureClass.SANDBOX_CREATE)
call, call_or_fail, refusal_failure = _REQUESTS.call, _REQUESTS.call_or_fail, _REQUESTS.refusal_failure
