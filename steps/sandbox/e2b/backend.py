"""Backend e2b: one microVM per sandbox, from the template that holds the row's image."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from statistics import fmean
from typing import Self

from e2b import NotFoundException, Sandbox, SandboxException
from typing_extensions import override

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox.e2b import routes
from swe_argo.steps.sandbox.e2b.creation import CreationRate, creation_rate, has_refused, request_until_accepted
from swe_argo.steps.sandbox.e2b.routes import kill_by_name, make_sandbox
from swe_argo.steps.sandbox.e2b.service import (
    E2BControl,
    kill_sandbox,
    service_address,
    service_failure,
    service_options,
)
from swe_argo.steps.sandbox.e2b.templates import hourly_price, template_of
from swe_argo.steps.sandbox.envd.account import (
    ProviderBackend,
    Refusals,
    metadata_of,
    refuse_long_commands,
    unit_limit_notice,
)
from swe_argo.steps.sandbox.envd.machine import FAILURES, EnvdSandbox
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Diagnosis, ReadinessResult, SandboxNeeds, SandboxRequest
from swe_argo.steps.sandbox.protocol import Sandbox as AnySandbox
from swe_argo.steps.settings import settings


class E2BBackend(ProviderBackend):
    """Sandboxes of one E2B account.

    The template fixes a sandbox's size and has it in its name; ``resource_factor`` does not apply.
    """

    name = "e2b"

    def __init__(self, spec: SandboxSpec, rate: CreationRate) -> None:
        self._spec = spec
        self._rate = rate

    @classmethod
    @override
    def connect(cls, spec: SandboxSpec) -> Self:
        """Connect to the service of the environment. Raises ConfigError without a key."""
        return cls(spec, creation_rate(spec))

    @override
    def create(self, request: SandboxRequest) -> EnvdSandbox:
        """Create a sandbox that ends by itself after ``deadline_s``, or earlier at the plan's limit.

        All tries share one idempotency key, so a lost answer creates no second sandbox.
        """
        template = request.snapshot or template_of(self._spec.e2b, request)
        life_s = min(request.deadline_s, self._spec.e2b.longest_life_s)
        tries = itertools.count()  # the next number is that of the tries so far

        def request_sandbox() -> tuple[Sandbox, float]:
            """Request the sandbox once; return its client and the time of the request."""
            began = time.monotonic()
            box = make_sandbox(
                template,
                life_s=max(1, math.ceil(life_s)),
                name=request.name,
                metadata=metadata_of(request),
                network=request.network,
                idempotency_key=idempotency_key(request.name, template),
                is_retry=next(tries) > 0,
            )
            return box, began

        try:
            box, began = request_until_accepted(request_sandbox, self._rate)
        except BaseException as error:
            # A sandbox may exist although its answer was lost, even if a later try was refused.
            if next(tries) > 1 or not has_refused(error):
                with suppress(StepError):
                    kill_by_name(request.name)
            if isinstance(error, FAILURES):
                raise _create_failure(error, request, template) from error
            raise
        control = E2BControl(box, ends=began + life_s)
        price = hourly_price(self._spec.e2b, request.cpus, request.memory_mb)
        return self.open_machine(control, request, life_s=life_s, began=began, usd_per_hour=price)

    @classmethod
    @override
    def ready(cls, spec: SandboxSpec, needs: SandboxNeeds) -> ReadinessResult:
        """Check key, lifetime and templates, of which missing ones are built if the spec allows it."""
        from swe_argo.steps.sandbox.e2b.stored_templates import provide_templates  # only planning needs it

        service_options()
        remedy = "--e2b-longest-life to the plan's limit"
        refuse_long_commands(
            needs, spec.e2b.longest_life_s, remedy, "sandbox.e2b.longest_life_s", " (Hobby 3600, Pro 86400)"
        )
        provide_templates(spec, needs)
        machines = [machine for image in needs.images for machine in needs.machines_of(image)]
        prices = [hourly_price(spec.e2b, spec.cpus or own.cpus, spec.memory_mb or own.memory_mb) for own in machines]
        return ReadinessResult(
            notices=unit_limit_notice(spec.e2b.sandboxes, cls.place()), usd_per_hour=fmean(prices) if prices else None
        )

    @classmethod
    @override
    def diagnose(cls, spec: SandboxSpec) -> Diagnosis:
        """Test the key with one small request."""
        if settings().e2b_api_key is None:
            return Diagnosis(None, "no key is set", "set E2B_API_KEY to use sandboxes of E2B")
        try:
            next(routes.list_sandboxes({}, limit=1), None)
        except StepError as error:
            return Diagnosis(False, error.reason.removeprefix("sandbox.backend: "))
        return Diagnosis(True, f"{service_address()} accepts the key")

    @classmethod
    @override
    def place(cls) -> str:
        return "E2B"

    @classmethod
    @override
    def list_sandboxes(cls, metadata: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
        for info in routes.list_sandboxes(dict(metadata)):
            yield info.sandbox_id, info.metadata

    @classmethod
    @override
    def remove_sandbox(cls, id_: str) -> bool:
        return kill_sandbox(id_)

    @classmethod
    @override
    def refusals(cls, spec: SandboxSpec) -> Refusals:
        return creation_rate(spec).refusals

    def snapshot(self, sandbox: AnySandbox, name: str) -> str:
        """Take a snapshot, see ``Snapshots``."""
        assert isinstance(sandbox, JobSandbox)
        return routes.take_snapshot(sandbox.transport.sandbox_id, name)

    def remove_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot, see ``Snapshots``."""
        routes.remove_snapshot(snapshot)


def idempotency_key(name: str, template: str) -> str:
    """Return the idempotency key of all tries to create a sandbox; another template gives another key."""
    return f"{name[:200]}-{hashlib.sha256(f'{name} {template}'.encode()).hexdigest()[:8]}"


def _create_failure(error: BaseException, request: SandboxRequest, template: str) -> StepError:
    """Return the failure of a create: 404 means a missing template, other 4xx except 429 a wrong request."""
    status = getattr(error, "status_code", None) if isinstance(error, SandboxException) else None
    if status == 404 or isinstance(error, NotFoundException):
        return ConfigError(
            f"E2B has no template {template!r}: build it from the image, or map the image to an existing template "
            "in the file of sandbox.e2b.templates",
            field=f"image {request.image}",
            failure_class=FailureClass.IMAGE_MISSING,
            detail=str(error),
        )
    if status in (400, 402, 403, 413, 422):
        return ConfigError(f"E2B refused to create {request.name}: {error}", field="sandbox", detail=str(error))
    return service_failure(error, FailureClass.SANDBOX_CREATE, f"creating sandbox {request.name}")
