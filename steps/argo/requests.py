"""Requests about Workflows and their pods: an API server that fails is a failure of the engine."""

from __future__ import annotations

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.kube.client import ApiRequests

_REQUESTS = ApiRequests(FailureClass.ENGINE)
call, refusal_failure = _REQUESTS.call, _REQUESTS.refusal_failure
