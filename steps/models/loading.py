"""The openai library, without the hundreds of types of it that a chat completion never touches.

``import openai`` defines the types of every interface OpenAI has, and loads aiohttp where that is installed: 0.5 to
0.6 s of CPU, several times what a step takes to start. A package's names are bound when its ``__init__`` has run; here
the ``__init__`` of ``openai.types`` and of the packages in it runs when somebody asks for a name that is no module of
it, as PEP 562 does it for single modules. What is asked for is there as ever, it only comes later.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

LATE = "openai.types"
"""The package whose content is loaded late, and all packages in it."""
OPTIONAL = "aiohttp"
"""For the asynchronous client alone, and only where it is installed: the library does without."""


def load_openai() -> ModuleType:
    """The library, loaded once. Raises ModuleNotFoundError where it is not installed."""
    if "openai" in sys.modules:
        return sys.modules["openai"]
    with _quietly(), _late(), _without(OPTIONAL):
        return importlib.import_module("openai")


@contextmanager
def _quietly() -> Iterator[None]:
    # Thousands of classes that all stay: collecting garbage in between finds none, nor does it later or at the end.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _late() -> Iterator[None]:
    # The finder stays: packages within are found when they are asked for.
    if not any(isinstance(finder, _LateFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LateFinder())
    yield


@contextmanager
def _without(name: str) -> Iterator[None]:
    """As if a library was not installed, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    modules[name] = None  # the import system's own word for: there is none
    try:
        yield
    finally:
        del sys.modules[name]


class _LateFinder(MetaPathFinder):
    """Finds the packages under LATE where they are, and leaves their ``__init__`` for later."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != LATE and not fullname.startswith(f"{LATE}."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.submodule_search_locations is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


class _LateLoader(Loader):
    """Makes a package that runs its ``__init__`` when it must."""

    def __init__(self, now: Loader) -> None:
        self.now = now

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LatePackage(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""


class _LatePackage(ModuleType):
    """A package whose submodules are there, and whose names come with its ``__init__``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        spec = self.__spec__
        self.__class__ = ModuleType  # type: ignore[assignment]  # from here on a module as any other
        if spec is not None and isinstance(spec.loader, _LateLoader):
            spec.loader.now.exec_module(self)
        return getattr(self, name)
