"""Archives of agents' files, to upload for templates."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from swe_argo.steps.bundles.tree import write_tar
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.progress_lines import print_progress
from swe_argo.steps.errors import ResourceError
from swe_argo.steps.host.folders import temporary_folder
from swe_argo.steps.sandbox.bundle_mounts import bundle_folder
from swe_argo.steps.sandbox.protocol import BundleMount

ARCHIVE = "agent.tar.gz"


class AgentArchives:
    """Archives of agents' files in the folder ``scratch``, each packed on first use and read for every template."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._packed: dict[str, Path] = {}

    def pack(self, bundle: BundleMount) -> Path:
        """Return a folder that contains only the bundle's files, packed as ``ARCHIVE``.

        The same files give the same bytes, mode and name, so that E2B recognises an uploaded archive. Raises
        ConfigError if this machine lacks the files, ResourceError if the archive cannot be written.
        """
        if bundle.digest not in self._packed:
            files = bundle_folder(bundle)
            print_progress("packing the agent's files for E2B")
            folder = self._scratch / str(len(self._packed))
            try:
                folder.mkdir()
                with (
                    (folder / ARCHIVE).open("wb") as out,
                    gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=3, mtime=0) as zipped,
                ):
                    write_tar(files, cast("IO[bytes]", zipped))
                (folder / ARCHIVE).chmod(0o644)
            except OSError as error:
                raise ResourceError(FailureClass.OUT_OF_DISK, f"could not pack the agent's files: {error}") from error
            self._packed[bundle.digest] = folder
        return self._packed[bundle.digest]


@contextmanager
def agent_archives() -> Iterator[AgentArchives]:
    """Yield the archives; remove them at the end."""
    with temporary_folder() as scratch:
        yield AgentArchives(scratch)
