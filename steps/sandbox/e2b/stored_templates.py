"""The templates of an account at the service: list, build, remove."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from e2b import BuildException, FileUploadException, SandboxException, Template, TemplateClass
from e2b.api import handle_api_exception
from e2b.api.client_sync import get_api_client
from e2b.connection_config import ConnectionConfig
from e2b.template.types import BuildInfo

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.recipe import BUNDLE_PLACE
from swe_argo.steps.errors import ConfigError, InfraError, one_line
from swe_argo.steps.sandbox.bundle_upload import sealing
from swe_argo.steps.sandbox.e2b.agent_archives import ARCHIVE
from swe_argo.steps.sandbox.e2b.service import call_service, service_options
from swe_argo.steps.sandbox.e2b.templates import PREFIX, WantedTemplate
from swe_argo.steps.sandbox.envd.failures import retrying
from swe_argo.steps.settings import settings

T = TypeVar("T")

READY, BUILDING, WAITING, FAILED = "ready", "building", "waiting", "error"
"""States of a build, in the service's words. ``waiting``: requested, but not started."""
_PASSING = (408, 429)
"""The 4xx statuses that do not mean a wrong request."""


@dataclass(frozen=True)
class StoredTemplate:
    """A template of ours, in cores and MiB; times are UTC; None if the service does not report it."""

    name: str
    template_id: str
    state: str
    cpus: int | None
    memory_mb: int | None
    created_at: datetime | None
    updated_at: datetime | None
    last_used_at: datetime | None


def list_templates() -> dict[str, StoredTemplate]:
    """Return name -> template of our templates in the account. Raises ConfigError, InfraError."""

    def ask() -> list[dict[str, Any]]:
        answer = get_api_client(ConnectionConfig(**service_options())).get_httpx_client().get("/templates")
        if answer.status_code >= 300:
            raise handle_api_exception(answer)
        return list(answer.json())

    found = {}
    for listed in _call(ask, "listing the templates of E2B"):
        names = (name.rpartition("/")[2] for name in (*listed.get("aliases", ()), *listed.get("names", ())))
        for name in {name for name in names if name.startswith(PREFIX)}:
            found[name] = _stored(name, listed)
    return found


def is_there(name: str) -> bool:
    """Return whether any template has this name, ours or another's. Raises ConfigError, InfraError."""
    return _call(lambda: bool(Template.exists(name, **service_options())), f"asking for template {name}")


def start_build(wanted: WantedTemplate, agent: Path | None = None) -> BuildInfo:
    """Request a build, which runs at the service. Raises ConfigError if the service refuses it; InfraError.

    ``agent``: the folder of ``AgentArchives.pack``. Its archive is uploaded unless the account has it in some template.
    """
    options = service_options()
    if wanted.bundle:
        options.pop("request_timeout", None)  # the SDK would also limit the whole upload to it: without it, an hour
    template = _instructions(wanted, agent)
    return _call(
        lambda: Template.build_in_background(
            template, wanted.name, cpu_count=wanted.cpus, memory_mb=wanted.memory_mb, **options
        ),
        f"asking for template {wanted.name}",
    )


def _instructions(wanted: WantedTemplate, agent: Path | None) -> TemplateClass:
    own = settings()
    username, password = own.registry_username, own.registry_password
    if (username is None) != (password is None):
        raise ConfigError("a private registry needs both, or neither", field="SWE_ARGO_REGISTRY_USERNAME and _PASSWORD")
    template = Template(file_context_path=agent).from_image(
        wanted.image, username=username, password=password.get_secret_value() if password else None
    )
    if wanted.bundle and agent:
        archive, place = f"{BUNDLE_PLACE}.tar.gz", shlex.quote(BUNDLE_PLACE)
        unpack = f"mkdir -p {place} && tar -xzf {shlex.quote(archive)} -C {place} && rm {shlex.quote(archive)}"
        template.copy(ARCHIVE, archive, user="root")
        template.run_cmd([unpack, sealing(wanted.bundle.digest)], user="root")
    return template


def ask_build(build: BuildInfo) -> tuple[str, str]:
    """Return the state of a build, and the reason if it failed. Raises ConfigError, InfraError."""
    status = _call(
        lambda: Template.get_build_status(build, **service_options()), f"asking for the build of {build.name}"
    )
    state = str(status.status.value)
    if state != FAILED:
        return state, ""
    lines = [entry.message for entry in status.log_entries if entry.message.strip()]
    why = status.reason.message if status.reason and status.reason.message else "no reason is given"
    last = f" (last line: {one_line(lines[-1], 200)})" if lines and lines[-1] not in why else ""
    return state, one_line(why, 300) + last


def remove_template(template: StoredTemplate) -> None:
    """Remove a template, which may be gone already. Raises ConfigError, InfraError."""

    def ask() -> None:
        client = get_api_client(ConnectionConfig(**service_options())).get_httpx_client()
        answer = client.delete(f"/templates/{template.template_id}")
        if answer.status_code >= 300 and answer.status_code != 404:
            raise handle_api_exception(answer)

    _call(ask, f"removing template {template.name}")


def _call(act: Callable[[], T], doing: str) -> T:
    """Call the service, see ``call_service``; a permanent refusal means a wrong request."""

    def attempt() -> T:
        try:
            return act()
        except BuildException as error:  # it gives its status only in words
            converted = SandboxException(str(error))
            if match := re.match(r"(\d{3})\b", str(error)):
                converted.status_code = int(match[1])
            elif isinstance(error, FileUploadException):  # any interruption of the upload
                raise ConnectionError(str(error)) from error
            raise converted from error

    try:
        return call_service(attempt, FailureClass.IMAGE_PULL, doing, retrying(attempts=4))
    except InfraError as error:
        status = getattr(error.__cause__, "status_code", None)
        if status is not None and 400 <= status < 500 and status not in _PASSING:
            raise ConfigError(error.reason, field="sandbox.e2b", detail=error.detail) from error
        raise


def _stored(name: str, listed: dict[str, Any]) -> StoredTemplate:
    moments = (_moment(listed.get(key)) for key in ("createdAt", "updatedAt", "lastSpawnedAt"))
    return StoredTemplate(
        name,
        str(listed.get("templateID", name)),
        str(listed.get("buildStatus", READY)),
        listed.get("cpuCount"),
        listed.get("memoryMB"),
        *moments,
    )


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
