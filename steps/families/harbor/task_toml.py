"""Schema of the used parts of ``task.toml``, as Harbor 0.25.0 reads it (harbor/models/task/config.py).

Other tables and keys are allowed, as in Harbor. Old names: ``version`` for ``schema_version``, ``memory`` and
``storage`` as text for ``memory_mb`` and ``storage_mb``, ``allow_internet`` for ``network_mode``.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

_VARIABLE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_UNITS = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


class _TomlTable(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TaskName(_TomlTable):
    """The table ``[task]``."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str | None = None


class TaskPhase(_TomlTable):
    """The table ``[agent]``, and the keys that ``[verifier]`` shares with it."""

    timeout_sec: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    user: str | int | None = None
    network_mode: str | None = None


class TaskVerifier(TaskPhase):
    """The table ``[verifier]``. With ``environment``, or ``environment_mode`` separate, it needs its own machine."""

    timeout_sec: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class TaskEnvironment(_TomlTable):
    """The table ``[environment]``."""

    docker_image: str | None = None
    os: str = "linux"
    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_mb: int | None = Field(default=None, gt=0)
    storage_mb: int | None = Field(default=None, gt=0)
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    network_mode: Literal["no-network", "public", "allowlist"] = "public"
    healthcheck: dict[str, Any] | None = None
    mcp_servers: list[Any] = []

    @model_validator(mode="before")
    @classmethod
    def _translate_old_names(cls, value: Any) -> Any:
        """Translate the old names of keys. Raises ValueError if an old and a new key contradict each other."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            size = value.pop(old, None)
            if not isinstance(size, str):
                continue
            if value.setdefault(new, size_mb(size)) != size_mb(size):
                raise ValueError(f"{old} = {size!r} is not {new} = {value[new]}")
        allowed = value.pop("allow_internet", None)
        if allowed is not None:
            value.setdefault("network_mode", "public" if allowed else "no-network")
        return value

    @field_validator("os", mode="before")
    @classmethod
    def _lower_os(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


class TaskSolution(_TomlTable):
    """The table ``[solution]``."""

    env: dict[str, str] = {}


class TaskFile(_TomlTable):
    """The whole file."""

    task: TaskName | None = None
    metadata: dict[str, Any] = {}
    agent: TaskPhase = TaskPhase()
    verifier: TaskVerifier = TaskVerifier()
    environment: TaskEnvironment = TaskEnvironment()
    solution: TaskSolution = TaskSolution()
    steps: list[Any] | None = None


def parse(text: str) -> TaskFile:
    """Parse the file's content. Raises ValueError with one line that names the key."""
    try:
        return TaskFile.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def size_mb(text: str) -> int:
    """Convert ``2G``, ``512M`` or ``1024K`` to MiB, as Harbor does. Raises ValueError."""
    number, unit = text.strip().upper()[:-1], text.strip().upper()[-1:]
    if unit not in _UNITS:
        raise ValueError(f"{text!r} is not a size like 2G or 512M")
    try:
        return int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a size like 2G or 512M") from None


def expand_variables(variables: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return (the variables, names of variables that only the host could provide).

    ``${NAME:-default}`` becomes its default, so that this machine's environment never enters a sandbox or a store.
    """
    values, missing = {}, []
    for name, value in variables.items():
        match = _VARIABLE.fullmatch(value)
        if match is None:
            values[name] = value
        elif match[2] is None:
            missing.append(match[1])
        else:
            values[name] = match[2]
    return values, missing
