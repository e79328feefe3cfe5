"""What pip is to add to an image of verl's: ``python3 verl_packages.py pyproject.toml steps.lock NEEDED KEPT``.

NEEDED are the project's requirements. KEPT are constraints: what was built for each other in the image stays as it is,
what it lacks comes as locked. The rest of it goes up only where the project needs a newer one.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

EXTRAS = ("docker", "kubernetes", "e2b", "s3", "hub")
WITHOUT_DEPENDENCIES = "swebench"
"""Names more than the parts of it that grading needs: the recipe installs it by itself."""
BUILT_FOR_EACH_OTHER = re.compile(
    "torch|triton|nvidia|cuda|cupy|flash|xformers|vllm|sgl|xgrammar|ray$|numpy|transformers|tokenizers|peft|accelerate"
    "|apex|megatron|mbridge|deep-ep"
)


def main(pyproject: Path, lock: Path, requirements_file: Path, pins_file: Path) -> None:
    """Write both."""
    project = tomllib.loads(pyproject.read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(name for extra in EXTRAS for name in project["optional-dependencies"][extra]),
    ]
    requirements_file.write_text(
        "".join(f"{name}\n" for name in requirements if not name.startswith(WITHOUT_DEPENDENCIES))
    )
    versions = {
        re.sub("[-_.]+", "-", distribution.name).lower(): distribution.version for distribution in distributions()
    }
    pins = [f"{name}=={version}" for name, version in versions.items() if BUILT_FOR_EACH_OTHER.match(name)]
    locked = re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", lock.read_text(), re.MULTILINE)
    pins += [f"{name}=={version}" for name, version in locked if name not in versions]
    pins_file.write_text("".join(f"{pin}\n" for pin in sorted(pins)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
