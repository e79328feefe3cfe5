"""``python -m tests.verl.home``: print the python of an environment with verl; install it on first use."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.own_environment import NotInstalledError, install_library

if __name__ == "__main__":
    if sys.version_info >= (3, 13):
        sys.exit("verl 0.9.1 needs Python 3.11 or 3.12: make setup PYTHON=python3.12")
    requirements = Path(__file__).with_name("requirements.txt")
    try:
        python = install_library("verl", requirements, size="3 GB are downloaded, which unpacked are 7")
    except NotInstalledError as reason:
        sys.exit(str(reason))
    sys.stdout.write(f"{python}\n")
