"""The trainer's home: skyrl with JAX in a virtual environment of its own, outside of the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.own_environment import NotInstalledError, make_environment
from tests.trainer import stand_ins

VARIABLE = "SWE_ARGO_TRAINER_HOME"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_TIMEOUT_S = 600


@dataclass(frozen=True)
class TrainerHome:
    """``folder`` has ``venv``, with our stand-ins in ``modules``, and JAX's compiled programs in ``compiled``."""

    folder: Path

    @property
    def programs(self) -> Path:
        """Where its python is, and the ``uv`` that skyrl calls."""
        return self.folder / "venv" / "bin"

    @property
    def modules(self) -> Path:
        """What is imported before anything of the environment."""
        return self.folder / "modules"

    @property
    def compiled(self) -> Path:
        """JAX compiles a program for every shape; a second start finds them here."""
        return self.folder / "compiled"

    @property
    def is_installed(self) -> bool:
        """Whether it is there, in the versions that are wanted now."""
        mark = self.folder / "installed"
        return mark.is_file() and mark.read_text() == _fingerprint()


def trainer_home() -> TrainerHome:
    """The folder that SWE_ARGO_TRAINER_HOME names, else one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return TrainerHome(Path(os.environ.get(VARIABLE) or cache / "swe-argo" / "trainer"))


def install_trainer(home: TrainerHome) -> None:
    """Make it what is wanted: nothing where it is already, else a download of some 250 MB, which unpacked are 1 GB.

    Raises NotInstalledError where the packages cannot be had.
    """
    home.folder.mkdir(parents=True, exist_ok=True)
    with (home.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_installed:
            return
        # Its own list of dependencies brings torch and CUDA, of which nothing is needed here.
        make_environment(home.folder / "venv", REQUIREMENTS, name="the trainer", timeout_s=INSTALL_TIMEOUT_S)
        for name, text in stand_ins.MODULES.items():
            (home.modules / name).parent.mkdir(parents=True, exist_ok=True)
            (home.modules / name).write_text(text)
        (home.programs / "uv").write_text(stand_ins.UV)
        (home.programs / "uv").chmod(0o755)
        (home.folder / "installed").write_text(_fingerprint())


def _fingerprint() -> str:
    texts = [REQUIREMENTS.read_text(), *stand_ins.MODULES.values(), stand_ins.UV, sys.version]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


if __name__ == "__main__":
    try:
        install_trainer(trainer_home())
    except NotInstalledError as reason:
        sys.exit(str(reason))
