"""Builds of missing templates at the service, several at once, with progress reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from e2b.template.types import BuildInfo

from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.sandbox.e2b.agent_archives import AgentArchives, agent_archives
from swe_argo.steps.sandbox.e2b.stored_templates import (
    BUILDING,
    FAILED,
    READY,
    WAITING,
    StoredTemplate,
    ask_build,
    list_templates,
    start_build,
)
from swe_argo.steps.sandbox.e2b.templates import WantedTemplate

AT_A_TIME = 10
"""Default number of concurrent builds: half of the limit of E2B's plans."""
POLL_S = 2.0
ABANDONED_S = 600.0
"""Seconds after which a requested build that has not started counts as abandoned: its requester died before."""
_GIVE_UP_AFTER = 3
"""Consecutive failures of the service after which the remaining builds are skipped."""
_TOO_MANY = 429


@dataclass
class TemplateBuilds:
    """Progress of the builds. ``failed`` has the reasons; a template in none of the lists is not done yet."""

    total: int
    there: list[WantedTemplate] = field(default_factory=list)
    """Templates that existed before."""
    built: list[WantedTemplate] = field(default_factory=list)
    failed: dict[WantedTemplate, str] = field(default_factory=dict)
    building: list[WantedTemplate] = field(default_factory=list)
    seconds: float = 0.0
    """Seconds since the start."""

    @property
    def done(self) -> int:
        """The number of templates that need no more waiting."""
        return len(self.there) + len(self.built) + len(self.failed)

    @property
    def seconds_left(self) -> float | None:
        """The estimate by the builds finished here; None before the first."""
        return self.seconds / len(self.built) * (self.total - self.done) if self.built else None


@dataclass
class _Build:
    wanted: WantedTemplate
    began: float
    info: BuildInfo | None
    """None if another process requested the build."""


def build_templates(
    wanted: Sequence[WantedTemplate],
    tell: Callable[[TemplateBuilds, WantedTemplate | None, float], None],
    *,
    at_a_time: int = AT_A_TIME,
    poll_s: float = POLL_S,
) -> TemplateBuilds:
    """Build missing templates, wait for running builds, and leave existing ones.

    ``tell`` receives the progress, and a template that has just finished, with its seconds. One that fails stops no
    other. After an interrupt, requested builds continue at the service. Raises ConfigError (no key, no files of the
    agent here), InfraError if the service fails for several templates in a row, ResourceError.
    """
    with agent_archives() as archives:
        work = _Work(wanted, tell, at_a_time, archives)
        while work.waiting or work.running:
            work.begin_builds()
            work.tell()
            if work.running:
                time.sleep(poll_s)
                work.look()
    work.tell()
    return work.progress


class _Work:
    def __init__(
        self,
        wanted: Sequence[WantedTemplate],
        tell: Callable[[TemplateBuilds, WantedTemplate | None, float], None],
        at_a_time: int,
        archives: AgentArchives,
    ) -> None:
        self.progress = TemplateBuilds(len(wanted))
        self.running: dict[str, _Build] = {}
        self.waiting: deque[WantedTemplate] = deque()
        self._tell, self._at_a_time, self._archives = tell, at_a_time, archives
        self._began = time.monotonic()
        self._failures = 0
        self._stored = list_templates()
        for each in wanted:
            if (stored := self._stored.get(each.name)) and stored.state == READY:
                self.progress.there.append(each)
            else:
                self.waiting.append(each)

    def tell(self, finished: _Build | None = None) -> None:
        now = time.monotonic()
        self.progress.seconds = now - self._began
        self.progress.building = [build.wanted for build in self.running.values()]
        wanted, seconds = (finished.wanted, now - finished.began) if finished else (None, 0.0)
        self._tell(self.progress, wanted, seconds)

    def begin_builds(self) -> None:
        while self.waiting and len(self.running) < self._at_a_time:
            each = self.waiting.popleft()
            build = _Build(each, time.monotonic(), None)
            if not _is_under_way(self._stored.get(each.name)):
                try:
                    build.info = start_build(each, self._archives.pack(each.bundle) if each.bundle else None)
                except InfraError as error:
                    if self.running and getattr(error.__cause__, "status_code", None) == _TOO_MANY:
                        self.waiting.appendleft(each)  # the plan's limit: one of the running builds must end first
                        return
                    self._fail(build, error)
                    continue
                except ConfigError as error:
                    self._fail(build, error)
                    continue
            self._failures = 0
            self.running[each.name] = build

    def look(self) -> None:
        """Poll each build; those of other processes all at once, by the list."""
        if any(build.info is None for build in self.running.values()):
            self._stored = list_templates()
        for name, build in list(self.running.items()):
            try:
                state, why = ask_build(build.info) if build.info else self._state_of_others(name)
            except (InfraError, ConfigError) as error:
                del self.running[name]
                self._fail(build, error)
                continue
            self._failures = 0
            if state in (BUILDING, WAITING):
                continue
            del self.running[name]
            if state == READY:
                self.progress.built.append(build.wanted)
                self.tell(build)
            elif build.info is None:  # another process' build failed or was abandoned: ours may succeed
                self.waiting.append(build.wanted)
            else:
                self.progress.failed[build.wanted] = why
                self.tell(build)

    def _state_of_others(self, name: str) -> tuple[str, str]:
        stored = self._stored.get(name)
        if stored and stored.state == READY:
            return READY, ""
        return (stored.state, "") if stored and _is_under_way(stored) else (FAILED, "")

    def _fail(self, build: _Build, error: InfraError | ConfigError) -> None:
        """Record a failed build. Raises the error if it is not this template's own."""
        if isinstance(error, ConfigError) and error.field != "sandbox.e2b":
            raise error
        self._failures += isinstance(error, InfraError)
        if self._failures >= _GIVE_UP_AFTER:
            raise error
        self.progress.failed[build.wanted] = error.reason.removeprefix("sandbox.e2b: ")
        self.tell(build)


def _is_under_way(stored: StoredTemplate | None) -> bool:
    """Return whether some process builds it."""
    if stored is None or stored.state not in (BUILDING, WAITING):
        return False
    if stored.state == BUILDING or stored.updated_at is None:
        return True
    moment = stored.updated_at if stored.updated_at.tzinfo else stored.updated_at.replace(tzinfo=UTC)
    return (datetime.now(UTC) - moment).total_seconds() < ABANDONED_S
