"""``python -m tests.verifiers.home``: print the python of an environment with verifiers; install it on first use."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.own_environment import NotInstalledError, install_library

if __name__ == "__main__":
    requirements = Path(__file__).with_name("requirements.txt")
    try:
        python = install_library("verifiers", requirements, size="some 200 MB are downloaded, which unpacked are 600")
    except NotInstalledError as reason:
        sys.exit(str(reason))
    sys.stdout.write(f"{python}\n")
