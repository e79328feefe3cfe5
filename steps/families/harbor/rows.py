"""Normalisation of a task's row, with the reason if it cannot be graded."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from pydantic import BaseModel

from swe_argo.steps.contracts.data import TaskMachine
from swe_argo.steps.contracts.ids import is_safe_id
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.columns import IMAGE, SourceRow
from swe_argo.steps.families.family import MACHINE_COLUMN, Row
from swe_argo.steps.families.harbor.dockerfile import working_directory
from swe_argo.steps.families.harbor.task_folder import CONFIG, DOCKERFILE, INSTRUCTION
from swe_argo.steps.families.harbor.task_toml import TaskFile, expand_variables, parse

IMAGE_PREFIX = "swe-argo-harbor/"
"""Prefix of images built from a task's environment; the tag is a hash of its files."""
TEST_SCRIPT, SOLVE_SCRIPT = "test.sh", "solve.sh"
NOT_GRADEABLE = "<unusable>"
COLUMNS = (CONFIG, INSTRUCTION, "tests", "tests_files", "environment")
# Marks by which authors detect their task in a model's training data (harbor/models/task/task.py).
_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)


class HarborTask(BaseModel):
    """The parts of a task that only grading may see."""

    tests: str
    """A tar in base64, like the solution."""
    solution: str
    workdir: str | None
    verifier_timeout_s: float
    solution_timeout_s: float | None
    verifier_variables: dict[str, str]
    solution_variables: dict[str, str]


def normalise(row: SourceRow, where: str) -> Row:
    """See ``Family.normalise``. A task with an invalid task.toml has its folder's name and cannot be graded."""
    try:
        file = parse(str(row[CONFIG]))
    except ValueError as error:
        file, row = TaskFile(), {**row, "problem": f"{CONFIG}: {' '.join(str(error).split())}"}
    name = file.task.name.replace("/", "__") if file.task else str(row["folder"])
    if not is_safe_id(name):
        reason = "is not a name of letters, digits, '.', '_' and '-', at most 128"
        raise ConfigError(f"{where}: {name!r} {reason}", field="dataset")
    variables, _ = expand_variables(file.environment.env)
    machine = TaskMachine(
        workdir=_workdir(row, file),
        variables=variables,
        cpus=file.environment.cpus,
        memory_mb=file.environment.memory_mb,
        disk_mb=file.environment.storage_mb,
        agent_timeout_s=file.agent.timeout_sec,
    )
    task = HarborTask(
        tests=row["tests"],
        solution=row.get("solution") or "",
        workdir=machine.workdir,
        verifier_timeout_s=file.verifier.timeout_sec,
        solution_timeout_s=file.agent.timeout_sec,
        verifier_variables=expand_variables(file.verifier.env)[0],
        solution_variables=expand_variables(file.solution.env)[0],
    )
    return {
        "instance_id": name,
        "repo": _group(file),
        "version": (file.task.version if file.task else None) or "",
        "base_commit": "",
        "image": image_of(row, name, file),
        "problem_statement": without_canary(row.get(INSTRUCTION) or ""),
        "hints_text": "",
        "created_at": "",
        "patch": "",
        "difficulty": file.metadata.get("difficulty"),
        "task": task.model_dump(),
        MACHINE_COLUMN: machine.model_dump(),
        NOT_GRADEABLE: _why_not(row, file),
    }


def image_of(row: SourceRow, name: str, file: TaskFile) -> str:
    """Return the task's image, else the name of the image built from its environment."""
    if file.environment.docker_image:
        return file.environment.docker_image
    return f"{IMAGE_PREFIX}{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}:{str(row['environment'])[:16]}"


def without_canary(text: str) -> str:
    """Return an instruction without canary lines and blank lines at its start."""
    lines = text.split("\n")
    while lines and _CANARY.match(lines[0].strip()):
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def _group(file: TaskFile) -> str:
    """Return a task's group in reports: its category, else its organisation, in place of a repository."""
    category = file.metadata.get("category")
    if isinstance(category, str) and category.strip():
        return category.strip()[:80]
    return file.task.name.partition("/")[0] if file.task else "harbor"


def _workdir(row: SourceRow, file: TaskFile) -> str | None:
    """Return the working directory that task.toml or the Dockerfile names; None if neither does."""
    if file.environment.workdir:
        return posixpath.normpath(posixpath.join("/", file.environment.workdir))
    try:
        return working_directory(str(row[DOCKERFILE])) if row.get(DOCKERFILE) else None
    except ValueError:
        return None


def _why_not(row: SourceRow, file: TaskFile) -> str | None:
    """Return the first reason why a task cannot be graded, with the key or file."""
    environment, verifier = file.environment, file.verifier
    hosts = [env for env in (environment.env, verifier.env, file.solution.env) if expand_variables(env)[1]]
    reasons: dict[str, Any] = {
        str(row.get("problem")): row.get("problem"),
        "it has several steps (steps/), which is not supported": file.steps or row.get("steps"),
        "it needs several containers (docker-compose.yaml), which is not supported": row.get("compose"),
        f"environment.os is {environment.os}, not linux": environment.os != "linux",
        "it needs GPUs or TPUs (environment.gpus, environment.tpu)": environment.gpus or environment.tpu,
        "it needs MCP servers (environment.mcp_servers)": environment.mcp_servers,
        "it needs a service of its image (environment.healthcheck), but only files are graded": (
            environment.healthcheck
        ),
        "its verifier needs a separate machine (verifier.environment_mode, verifier.environment)": (
            verifier.environment_mode == "separate" or verifier.environment is not None
        ),
        "its verifier collects from running services (verifier.collect)": verifier.collect,
        "agent.user or verifier.user is not root, as which all commands run": any(
            phase.user not in (None, "root", "0", 0) for phase in (file.agent, verifier)
        ),
        f"it needs {', '.join(expand_variables(hosts[0])[1]) if hosts else ''} from the host, whose variables never "
        "enter a sandbox": hosts,
        f"environment.docker_image {environment.docker_image!a} is not an image name": (
            environment.docker_image and not IMAGE.fullmatch(environment.docker_image)
        ),
        "it has no instruction.md": not row.get(INSTRUCTION),
        "it has no tests/test.sh": TEST_SCRIPT not in row["tests_files"],
        "its image is neither named (environment.docker_image) nor buildable (environment/Dockerfile)": (
            not environment.docker_image and not row.get(DOCKERFILE)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
