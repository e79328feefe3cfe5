"""Backend e2b: one microVM per sandbox, from the template that holds the row's image."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from contextlib import suppress

from e2b import NotFoundException, Sandbox, SandboxException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.machine import Machine
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.sandbox.e2b import snapshots
from swe_argo.steps.sandbox.e2b.creation import creation_rate, has_refused, insist
from swe_argo.steps.sandbox.e2b.creation_rate import CreationRate
from swe_argo.steps.sandbox.e2b.prices import hourly_price
from swe_argo.steps.sandbox.e2b.routes import kill_named, make_sandbox
from swe_argo.steps.sandbox.e2b.service import E2BControl, service_failure
from swe_argo.steps.sandbox.e2b.templates import template_of
from swe_argo.steps.sandbox.envd.failures import FAILURES
from swe_argo.steps.sandbox.envd.machine import EnvdMachine, EnvdSandbox
from swe_argo.steps.sandbox.envd.orphans import metadata_of
from swe_argo.steps.sandbox.job_sandbox import JobSandbox
from swe_argo.steps.sandbox.protocol import Sandbox as AnySandbox
from swe_argo.steps.sandbox.protocol import SandboxRequest


def connect(spec: SandboxSpec) -> E2BBackend:
    """Connect to the service of the environment. Raises ConfigError without a key."""
    return E2BBackend(spec, creation_rate(spec))


class E2BBackend:
    """Makes and removes sandboxes.

    The template fixes a sandbox's size: it is part of its name, and no factor makes it larger.
    """

    def __init__(self, spec: SandboxSpec, rate: CreationRate) -> None:
        self._spec = spec
        self._rate = rate

    def create(self, request: SandboxRequest) -> EnvdSandbox:
        """Create a sandbox that ends by itself after ``deadline_s``, or earlier at the plan's limit.

        Raises ConfigError (no such template, a refused key, a life longer than the plan's), InfraError (SANDBOX_CREATE:
        no room for ``ROOM_S``, no answer). Each try waits for its turn, and a try with a lost answer makes no second
        sandbox: all tries share one idempotency key.
        """
        template = request.snapshot or template_of(
            self._spec.e2b,
            request.image,
            registry=request.registry,
            cpus=request.cpus,
            memory_mb=request.memory_mb,
            bundle=request.bundle,
        )
        life_s = min(request.deadline_s, self._spec.e2b.longest_life_s)
        tries = itertools.count()

        def ask() -> tuple[Sandbox, float]:
            began = time.monotonic()
            box = make_sandbox(
                template,
                life_s=max(1, math.ceil(life_s)),
                name=request.name,
                metadata=metadata_of(request),
                network=request.network,
                idempotency_key=idempotency_key(request.name, template),
                again=next(tries) > 0,
            )
            return box, began

        try:
            box, began = insist(ask, self._rate)
        except BaseException as error:
            # A sandbox may exist although its answer was lost: the last refusal says nothing about earlier tries.
            if next(tries) > 1 or not has_refused(error):
                with suppress(StepError):
                    kill_named(request.name)
            if isinstance(error, FAILURES):
                raise _refused(error, request, template) from error
            raise
        machine = Machine(
            backend="e2b",
            image=request.image,
            image_digest=_digest(request.image),
            isolation="microvm",
            network=request.network,
            cpus=request.cpus,
            memory_mb=request.memory_mb,
            usd_per_hour=hourly_price(self._spec.e2b, request.cpus, request.memory_mb),
        )
        control = E2BControl(box, ends=began + life_s)
        transport = EnvdMachine(control, life_s=life_s, began=began, is_cut=life_s < request.deadline_s)
        return JobSandbox(machine, transport, transport.stream_exec)

    def destroy(self, sandbox: AnySandbox) -> None:
        """Remove the sandbox. Raises InfraError if the service fails."""
        assert isinstance(sandbox, JobSandbox)
        sandbox.transport.kill()

    def snapshot(self, sandbox: AnySandbox, name: str) -> str:
        """Take a snapshot, see ``Snapshots``."""
        assert isinstance(sandbox, JobSandbox)
        return snapshots.take_snapshot(sandbox.transport.sandbox_id, name)

    def remove_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot, see ``Snapshots``."""
        snapshots.remove_snapshot(snapshot)


def idempotency_key(name: str, template: str) -> str:
    """Return the key of all tries at one sandbox, in the characters that the service allows."""
    return f"{name[:200]}-{hashlib.sha256(f'{name} {template}'.encode()).hexdigest()[:8]}"


def _digest(image: str) -> str | None:
    return image.partition("@")[2] or None


def _refused(error: BaseException, request: SandboxRequest, template: str) -> StepError:
    """Return the failure of a create: 404 is the template's, other 4xx except 429 are the request's."""
    status = getattr(error, "status_code", None) if isinstance(error, SandboxException) else None
    if status == 404 or isinstance(error, NotFoundException):
        return ConfigError(
            f"E2B has no template {template!r}: build it there from the image, or name the one that holds it "
            "in the file of sandbox.e2b.templates",
            field=f"image {request.image}",
            failure_class=FailureClass.IMAGE_MISSING,
            detail=str(error),
        )
    if status in (400, 402, 403, 413, 422):
        return ConfigError(f"E2B refuses to make {request.name}: {error}", field="sandbox", detail=str(error))
    return service_failure(error, FailureClass.SANDBOX_CREATE, f"making sandbox {request.name}")
