"""Imports of ``swebench.harness`` modules without the packages that grading a log does not use.

``swebench/harness/__init__.py`` imports docker, datasets and modal. An empty package of the same name and path takes
its place, so that its modules load in about 20 ms and need no more than unidiff. A real package that is already loaded
is left alone.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from swe_argo.steps.errors import ConfigError


@cache
def harness_folder() -> Path:
    """Return the folder of the harness. Raises ConfigError if swebench is not installed."""
    spec = find_spec("swebench")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("swebench is not installed: pip install swebench==5.0.2", field="swebench")
    return Path(spec.submodule_search_locations[0]) / "harness"


@cache
def import_harness(name: str) -> Any:
    """Import and return ``swebench.harness.<name>``."""
    package = ModuleType("swebench.harness")
    package.__path__ = [str(harness_folder())]
    sys.modules.setdefault(package.__name__, package)
    return import_module(f"swebench.harness.{name}")
