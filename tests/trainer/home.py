"""The trainer's home: a virtual environment with skyrl and JAX, outside of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.own_environment import NotInstalledError, make_environment

VARIABLE = "SWE_ARGO_TRAINER_HOME"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_TIMEOUT_S = 600

# Stand-ins for what skyrl imports or calls and does not need here.

# pydantic 2.14 refuses typing.TypedDict before Python 3.12; one of skyrl's modules has fields of such a type.
TYPED_DICT = """\
import typing
import typing_extensions

typing.TypedDict = typing_extensions.TypedDict
"""

# An adapter's weights are written beside a configuration that is not read here. The real peft needs torch.
PEFT = """\
import json
import pathlib


class LoraConfig:
    def __init__(self, **fields):
        self.fields = fields

    def save_pretrained(self, folder):
        pathlib.Path(folder, "adapter_config.json").write_text(json.dumps(self.fields))
"""

# A type in a signature; the JAX backend does not use torch.
TORCH = """\
class Tensor:
    pass
"""

# skyrl starts its engine by `uv run ... -m MODULE ...`, and reads its own options from the command line of its parent,
# so this stays the parent.
UV = """\
#!/bin/sh
while [ "$1" != "-m" ]; do shift; done
"$(dirname "$0")/python" "$@"
"""

MODULES = {"sitecustomize.py": TYPED_DICT, "peft/__init__.py": PEFT, "torch/__init__.py": TORCH}


@dataclass(frozen=True)
class TrainerHome:
    """A folder with ``venv``, our stand-ins in ``modules``, and JAX's compiled programs in ``compiled``."""

    folder: Path

    @property
    def programs(self) -> Path:
        """The folder of its python, and of the ``uv`` that skyrl calls."""
        return self.folder / "venv" / "bin"

    @property
    def modules(self) -> Path:
        """The modules that precede those of the environment."""
        return self.folder / "modules"

    @property
    def compiled(self) -> Path:
        """JAX's cache of programs, one for every shape."""
        return self.folder / "compiled"

    @property
    def is_installed(self) -> bool:
        """Return whether the required versions are installed."""
        mark = self.folder / "installed"
        return mark.is_file() and mark.read_text() == _fingerprint()


def trainer_home() -> TrainerHome:
    """Return the folder of SWE_ARGO_TRAINER_HOME, else one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return TrainerHome(Path(os.environ.get(VARIABLE) or cache / "swe-argo" / "trainer"))


def install_trainer(home: TrainerHome) -> None:
    """Install the required versions, unless they are there: a download of 250 MB, 1 GB unpacked.

    Raises NotInstalledError if the packages are not available.
    """
    home.folder.mkdir(parents=True, exist_ok=True)
    with (home.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_installed:
            return
        # Its own list of dependencies brings torch and CUDA, of which nothing is needed here.
        make_environment(home.folder / "venv", REQUIREMENTS, name="the trainer", timeout_s=INSTALL_TIMEOUT_S)
        for name, text in MODULES.items():
            (home.modules / name).parent.mkdir(parents=True, exist_ok=True)
            (home.modules / name).write_text(text)
        (home.programs / "uv").write_text(UV)
        (home.programs / "uv").chmod(0o755)
        (home.folder / "installed").write_text(_fingerprint())


def _fingerprint() -> str:
    texts = [REQUIREMENTS.read_text(), *MODULES.values(), UV, sys.version]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


if __name__ == "__main__":
    try:
        install_trainer(trainer_home())
    except NotInstalledError as reason:
        sys.exit(str(reason))
