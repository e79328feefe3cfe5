"""An agent program: where its files come from, how it is run, and what of it a run records."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from swe_argo.steps.contracts.record import Part
from swe_argo.steps.contracts.trajectory import StopReason

BUNDLE_PLACE = "/opt/swe-argo/agent"
"""Where a sandbox has an agent's files, read-only."""
WORDS = ("bundle", "instruction", "instruction_file", "model", "base_url", "home")
"""What may stand in braces in a recipe's command, variables and files."""
Protocol = Literal["chat", "responses", "anthropic"]
"""What an agent program speaks to its model: OpenAI chat completions, OpenAI Responses, Anthropic messages."""
Architecture = Literal["amd64", "arm64"]
Libc = Literal["any", "glibc", "musl"]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,62}")


def legal_name(value: str) -> str:
    """The name. Raises ValueError where it can be none."""
    if not _NAME.fullmatch(value):
        raise ValueError("a name is up to 64 lower-case letters, digits, '.', '_' and '-'")
    return value


def legal_version(value: str) -> str:
    """The version. Raises ValueError where no registry could have it."""
    if value and not _VERSION.fullmatch(value):
        raise ValueError(f"{value!r} is no version: one exact version, as 2.1.330")
    return value


def _path_in_home(value: str) -> str:
    if value.startswith("/") or ".." in value.split("/") or not value.strip("/"):
        raise ValueError(f"{value!r} is not a path in HOME, as .codex/config.toml")
    return value


def _legal_text(value: str) -> str:
    """Raises ValueError for a word in braces that nothing stands for; other braces are text."""
    for word in re.findall(r"\{([a-z_]+)\}", value):
        if word not in WORDS:
            raise ValueError(f"nothing stands for {{{word}}}: there are {', '.join(f'{{{name}}}' for name in WORDS)}")
    return value


Text = Annotated[str, AfterValidator(_legal_text)]


class NpmSource(Part):
    """A package of the npm registry."""

    package: str
    keep: list[str] = []
    """Patterns of the files that the bundle keeps, as node_modules/@openai/codex-linux-*/vendor/**; all by default."""
    links: dict[str, str] = {}
    """Name in the bundle -> pattern of the one file that it is a link to: bin/codex, whatever the architecture."""
    node: str | None = None
    """Version of node that the bundle brings along, as node/bin/node; None: the program needs none."""


class PypiSource(Part):
    """A package of PyPI, in an interpreter that the bundle brings along: python/bin/python3."""

    package: str
    python: Literal["3.11", "3.14"] = "3.14"
    any_python: bool = False
    """Take the package although it says that it is for another Python."""
    sources: list[str] = []
    """What of it there are no wheels of, and which is pure Python: lines of requirements with hashes."""


class Source(Part):
    """Where an agent's files come from: one of these."""

    npm: NpmSource | None = None
    pypi: PypiSource | None = None
    folder: str | None = None
    """A folder of this machine; in a recipe's file a relative one is beside that file."""
    image: str | None = None
    """An OCI image with the files at its root, for clusters."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if len([name for name in type(self).model_fields if getattr(self, name) is not None]) > 1:
            raise ValueError("an agent's files come from one place: npm, pypi, folder or image")
        return self


class Recipe(Part):
    """An agent program as a TOML file describes it (docs/agent-programs.md)."""

    name: Annotated[str, AfterValidator(legal_name)]
    version: Annotated[str, AfterValidator(legal_version)] = ""
    """Of the package; needed for npm and pypi."""
    protocol: Protocol = "chat"
    command: Annotated[list[Text], Field(min_length=1)]
    """Its words."""
    env: dict[str, Text] = {}
    """Variables of its environment."""
    files: dict[Annotated[str, AfterValidator(_path_in_home)], Text] = {}
    """Path in HOME -> what is written there before it runs."""
    exits: dict[int, StopReason] = {}
    """Exit code -> what it means; by default 0 that it finished, and any other that it crashed."""
    libc: Libc = "any"
    """What its files need of an image: any is a static program, a script, or one that brings all along."""
    architectures: Annotated[list[Architecture], Field(min_length=1)] = ["amd64", "arm64"]
    source: Source = Source()

    @model_validator(mode="after")
    def _with_a_version(self) -> Self:
        if (self.source.npm or self.source.pypi) and not self.version:
            raise ValueError("a package needs its exact version")
        if self.source.pypi and self.libc != "glibc":
            raise ValueError('a package of PyPI brings an interpreter along that needs libc = "glibc"')
        return self

    @property
    def is_package(self) -> bool:
        """Whether its files are made by ``swe-argo agents build``."""
        return bool(self.source.npm or self.source.pypi)


class BundleFacts(Part):
    """The files of an agent program as a run has them."""

    digest: str
    """sha256 over the tree: paths, kinds, contents, and what may be executed."""
    architecture: Architecture
    libc: Libc
    image: str | None = None
    """The OCI image with these files, where the run's sandboxes are on a cluster."""
    packages: dict[str, str] = {}
    """Package -> version, of all that was installed."""


class AgentProgram(Part):
    """The agent program of a run: its recipe, resolved, and its files."""

    recipe: Recipe
    bundle: BundleFacts | None = None
    """None where the command needs no files of its own."""
