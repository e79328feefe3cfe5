"""Orphaned sandboxes at a provider, recognised by their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.host.folders import is_dead, process_owner
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import SandboxRequest

OURS = {"swe-argo": "swe-argo"}
"""Metadata that marks our sandboxes."""


def metadata_of(request: SandboxRequest) -> dict[str, str]:
    """Return the metadata by which a sandbox is found: its name, its owner on this machine, its store and run."""
    owner = {"name": request.name, "owner": process_owner(), "store": request.store_id}
    return {**OURS, **owner, **request.labels}


@dataclass(frozen=True)
class ProviderSandboxes:
    """Our sandboxes in the account of one provider."""

    backend: str
    where: str
    """The provider's name for messages."""
    listed: Callable[[Mapping[str, str]], Iterable[tuple[str, Mapping[str, str]]]]
    """Yields id and metadata of running sandboxes with all of the given metadata. Raises ConfigError, InfraError."""
    end: Callable[[str], object]
    """Removes the sandbox with this id. Raises ConfigError, InfraError."""

    def list_orphans(self, spec: SandboxSpec) -> Orphans:
        """List the account's orphans. Without a key there are none; a provider that does not answer is named."""
        try:
            found = self.find_orphans()
        except StepError as error:
            if spec.backend == self.backend and isinstance(error, ConfigError):
                raise
            return Orphans(why_not="" if isinstance(error, ConfigError) else error.reason)
        return self._orphans(found)

    def list_run(self, run_id: str, store_id: str | None = None) -> Orphans:
        """List the sandboxes of a finished run, whichever machine made them; of one store's run if ``store_id`` is set.

        Raises ConfigError, InfraError.
        """
        store = {} if store_id is None else {"store": store_id}
        return self._orphans({name: number for name, number, _ in self._named({"run": run_id, **store})})

    def find_orphans(self) -> dict[str, str]:
        """Return name -> id of our sandboxes whose owner, on this machine, is dead. Never others'.

        Raises ConfigError, InfraError.
        """
        return {name: number for name, number, metadata in self._named({}) if is_dead(metadata.get("owner", ""))}

    def remove_orphans(self) -> None:
        """Remove all orphans that can be removed. Raises ConfigError, InfraError if they cannot be listed."""
        self.remove(self.find_orphans())

    def remove(self, found: Mapping[str, str]) -> dict[str, str]:
        """Remove sandboxes. Return the names of the remaining ones, each with the reason."""
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
        """Yield sandboxes under unique names: after a lost answer to a start two may have the same name."""
        names: set[str] = set()
        for number, its in self.listed({**OURS, **metadata}):
            name = its.get("name") or number
            yield f"{name} {number}" if name in names else name, number, its
            names.add(name)
