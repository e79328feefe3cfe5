"""Orphaned sandboxes at a provider, recognised by their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.host.folders import is_dead, process_owner
from swe_argo.steps.sandbox.orphans import Orphans
from swe_argo.steps.sandbox.protocol import SandboxRequest

OUR_METADATA = {"swe-argo": "swe-argo"}
"""Metadata that marks our sandboxes."""


def metadata_of(request: SandboxRequest) -> dict[str, str]:
    """Return the metadata that identify a sandbox: its name, its owner on this machine, its store and run."""
    owner = {"name": request.name, "owner": process_owner(), "store": request.store_id}
    return {**OUR_METADATA, **owner, **request.labels}


@dataclass(frozen=True)
class ProviderSandboxes:
    """Our sandboxes in the account of one provider."""

    backend: str
    where: str
    """The provider's name for messages."""
    list_sandboxes: Callable[[Mapping[str, str]], Iterable[tuple[str, Mapping[str, str]]]]
    """Lists id and metadata of running sandboxes with all of the given metadata. Raises ConfigError, InfraError."""
    remove_sandbox: Callable[[str], object]
    """Removes the sandbox with this id. Raises ConfigError, InfraError."""

    def list_orphans(self, spec: SandboxSpec) -> Orphans:
        """List the account's orphans; none, with ``why_not``, if the provider does not answer.

        Raises ConfigError without a key if the spec is for this backend; for another one there are none.
        """
        try:
            sandboxes = self.find_orphans()
        except StepError as error:
            if spec.backend == self.backend and isinstance(error, ConfigError):
                raise
            return Orphans(why_not="" if isinstance(error, ConfigError) else error.reason)
        return self._orphans(sandboxes)

    def list_run(self, run_id: str, store_id: str | None = None) -> Orphans:
        """List the sandboxes of a finished run, from any machine and store, or from the store ``store_id``.

        Raises ConfigError, InfraError.
        """
        store = {} if store_id is None else {"store": store_id}
        return self._orphans({name: id_ for name, id_, _ in self._list_unique({"run": run_id, **store})})

    def find_orphans(self) -> dict[str, str]:
        """Return name -> id of our sandboxes whose owner, a process of this machine, is dead.

        Raises ConfigError, InfraError.
        """
        return {name: id_ for name, id_, metadata in self._list_unique({}) if is_dead(metadata.get("owner", ""))}

    def remove_orphans(self) -> None:
        """Remove all orphans that can be removed. Raises ConfigError, InfraError if they cannot be listed."""
        self.remove(self.find_orphans())

    def remove(self, sandboxes: Mapping[str, str]) -> dict[str, str]:
        """Remove sandboxes (name -> id). Return the names that remain, each with the reason."""
        failures = {}
        for name, id_ in sandboxes.items():
            try:
                self.remove_sandbox(id_)
            except StepError as error:
                failures[name] = error.reason
        return failures

    def _orphans(self, sandboxes: Mapping[str, str]) -> Orphans:
        return Orphans(sorted(sandboxes), lambda: self.remove(sandboxes), where=self.where)

    def _list_unique(self, metadata: Mapping[str, str]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
        """Yield name, id and metadata of our sandboxes with all of ``metadata``.

        The name of a second sandbox of one name, as after a lost answer, is followed by its id.
        """
        names: set[str] = set()
        for id_, full_metadata in self.list_sandboxes({**OUR_METADATA, **metadata}):
            name = full_metadata.get("name") or id_
            yield f"{name} {id_}" if name in names else name, id_, full_metadata
            names.add(name)
