"""The only door to ``swebench.harness``: its modules, without the packages that grading a log does not use.

``swebench/harness/__init__.py`` imports docker, datasets and modal. An empty package of the same name and path stands
in for it, so that what lies below loads in about 20 ms and needs no more than unidiff. Where the real one is loaded
already it is left alone.
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
    """The folder of the harness. Raises ConfigError where swebench is not installed."""
    spec = find_spec("swebench")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("swebench is not installed: pip install swebench==5.0.2", field="swebench")
    return Path(spec.submodule_search_locations[0]) / "harness"


@cache
def import_harness(name: str) -> Any:
    """``swebench.harness.<name>``."""
    package = ModuleType("swebench.harness")
    package.__path__ = [str(harness_folder())]
    sys.modules.setdefault(package.__name__, package)
    return import_module(f"swebench.harness.{name}")
