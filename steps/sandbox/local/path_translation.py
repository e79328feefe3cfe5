"""Translation between sandbox paths and host paths, for a sandbox without a mount namespace."""

from __future__ import annotations

import re

from swe_argo.steps.contracts.data import WORKDIR


class PathTranslation:
    """A translation of paths: the sandbox's ``workdir`` and the files written outside it are in the host's ``root``.

    ``inward`` puts ``root`` before these paths in bytes for the sandbox, ``outward`` reverses it exactly. Parts of
    longer names, as in ``a/testbed`` and ``/testbed2``, are not translated.
    """

    def __init__(self, root: str, workdir: str = WORKDIR) -> None:
        self._root = root.encode()
        self._workdir = workdir.encode()
        self._paths = {self._workdir}
        self._pattern = _pattern(self._paths)

    def add_path(self, path: str) -> None:
        """Translate ``path`` from now on, too: a file outside ``workdir``. Its folder is not translated."""
        name = path.encode(errors="surrogateescape")
        if not self._pattern.fullmatch(name) and not name.startswith(self._workdir + b"/"):
            self._paths.add(name)
            self._pattern = _pattern(self._paths)

    def inward(self, data: bytes) -> bytes:
        """Replace sandbox paths by host paths."""
        # A shortcut, since the pattern takes 50 ns a byte.
        if not any(path in data for path in self._paths):
            return data
        return self._pattern.sub(lambda match: self._root + match[0], data)

    def outward(self, data: bytes) -> bytes:
        """Replace host paths by sandbox paths."""
        return data.replace(self._root + b"/", b"/")

    def max_host_size(self, size: int) -> int:
        """Return the maximum size on the host of a file of ``size`` bytes: each path in it is longer by ``root``."""
        return size + size // min(map(len, self._paths)) * len(self._root)

    def inward_text(self, text: str) -> str:
        """Apply ``inward`` to a command, a path or a variable."""
        return self.inward(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")


def _pattern(paths: set[bytes]) -> re.Pattern[bytes]:
    """Return the pattern that finds these paths in a text, the longest first."""
    names = b"|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
    # Not in the middle of a longer path, but after an option with a path (-I/testbed).
    return re.compile(rb"(?:(?<![\w.~/\-])|(?<=\s-[A-Z])|(?<=file://))(?:" + names + rb")(?![\w\-])")
