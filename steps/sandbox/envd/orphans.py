"""Sandboxes at a provider that somebody of ours left behind: told by their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.host.folders import is_dead, process_owner
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import SandboxRequest

OURS = {"swe-argo": "swe-argo"}
"""Metadata that tells our sandboxes from others'."""


def metadata_of(request: SandboxRequest) -> dict[str, str]:
    """What a sandbox is given, so that it is found again: its name, its owner on this machine, its store and run."""
    owner = {"name": request.name, "owner": process_owner(), "store": request.store_id}
    return {**OURS, **owner, **request.labels}


@dataclass(frozen=True)
class ProviderSandboxes:
    """Our sandboxes on the account of one provider."""

    backend: str
    where: str
    """The provider, for a person."""
    listed: Callable[[Mapping[str, str]], Iterable[tuple[str, Mapping[str, str]]]]
    """Id and metadata of those that run and have all of the metadata asked for. Raises ConfigError, InfraError."""
    end: Callable[[str], object]
    """Removes the one with this id. Raises ConfigError, InfraError."""

    def list_orphans(self, spec: SandboxSpec) -> Orphans:
        """Those of the account. Where no key is set nothing of ours runs there; what does not answer is named."""
        try:
            found = self.find_orphans()
        except StepError as error:
            if spec.backend == self.backend and isinstance(error, ConfigError):
                raise
            return Orphans(why_not="" if isinstance(error, ConfigError) else error.reason)
        return self._orphans(found)

    def list_run(self, run_id: str, store_id: str | None = None) -> Orphans:
        """The sandboxes of a run that is over, whoever made them; of one store's run where that is known.

        Raises ConfigError, InfraError.
        """
        store = {} if store_id is None else {"store": store_id}
        return self._orphans({name: number for name, number, _ in self._named({"run": run_id, **store})})

    def find_orphans(self) -> dict[str, str]:
        """Name -> id of our sandboxes whose owner, on this machine, is dead. Never others'.

        Raises ConfigError, InfraError.
        """
        return {name: number for name, number, metadata in self._named({}) if is_dead(metadata.get("owner", ""))}

    def remove_orphans(self) -> None:
        """Remove all that can be. Raises ConfigError, InfraError where they cannot be listed."""
        self.remove(self.find_orphans())

    def remove(self, found: Mapping[str, str]) -> dict[str, str]:
        """Remove them; the names of those that are left, and why."""
        failures = {}
        for name, number in found.items():
            try:
                self.end(number)
            except StepError as error:
                failures[name] = error.reason
        return failures

    def _orphans(self, found: Mapping[str, str]) -> Orphans:
        return Orphans(sorted(found), lambda: self.remove(found), where=self.where)

    def _named(self, metadata: Mapping[str, str]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Each under a name that no other has: of one name there are two where the answer to a start was lost."""
        names: set[str] = set()
        for number, its in self.listed({**OURS, **metadata}):
            name = its.get("name") or number
            yield f"{name} {number}" if name in names else name, number, its
            names.add(name)
