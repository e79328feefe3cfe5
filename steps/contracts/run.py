"""RunSpec: everything a person can wish for in a run. One field here is one flag, one TOML key and one line of docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from steps.contracts.ids import RUN_ID_RULE, is_run_id


@dataclass(frozen=True)
class Flag:
    """How a field is spelt on the command line; the first name is ours, the others other tools' users know."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class How:
    """Marks a field that says how a run is done, not what: it may change when a run is resumed."""


class Table(BaseModel):
    """A TOML table: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SelectSpec(Table):
    """Which instances of the dataset to run; every given condition must hold."""

    instance_ids: Annotated[list[str], Flag("--instance", "-i")] = []
    """Only these instance ids (repeatable); unknown ones are refused."""
    ids_file: Annotated[str | None, Flag("--ids-file")] = None
    """Only the ids in this file, one a line; blank lines and # comments are skipped."""
    exclude: Annotated[list[str], Flag("--exclude")] = []
    """Leave these ids out (repeatable)."""
    regex: Annotated[str | None, Flag("--regex", "--filter")] = None
    """Only ids in which this regular expression is found."""
    repos: Annotated[list[str], Flag("--repo")] = []
    """Only these repositories, as owner/name (repeatable)."""
    start_idx: Annotated[int, Flag("--start-idx", "--start_idx"), Field(ge=0)] = 0
    """Skip this many of the selected instances."""
    k: Annotated[int | None, Flag("--k"), Field(ge=1)] = None
    """Take at most this many of the selected instances."""
    shuffle_seed: Annotated[int | None, Flag("--shuffle-seed", "--seed")] = None
    """Shuffle the selected instances with this seed before start_idx and k; without it the dataset's order holds."""


class AgentSpec(Table):
    """Who works on the issue."""

    name: Annotated[Literal["gold", "given", "idle", "replay"], Flag("--agent")] = "gold"
    """gold: the reference patch. given: a predictions file. idle: no change, graded. replay: recorded actions."""
    predictions: Annotated[str | None, Flag("--predictions", "-p")] = None
    """Predictions to grade (.json or .jsonl, as swebench reads them); chooses agent 'given'."""
    trajectories: Annotated[str | None, Flag("--trajectories")] = None
    """Folder or file of recorded trajectories for agent 'replay'."""
    model: Annotated[str | None, Flag("--model", "--llm-name", "--llm_name")] = None
    """The model's name in reports; by default what the predictions or trajectories say, else the agent's name."""
    max_steps: Annotated[int, Flag("--max-steps", "--max_steps"), Field(ge=1)] = 100
    """At most this many actions an instance."""
    command_timeout_s: Annotated[float, Flag("--command-timeout"), Field(gt=0)] = 90.0
    """Seconds one action's command may run."""
    timeout_s: Annotated[float, Flag("--agent-timeout"), Field(gt=0)] = 3600.0
    """Seconds an agent may work on one instance."""
    hints: Annotated[bool, Flag("--hints/--no-hints")] = False
    """Show the agent the issue's discussion too; the report says so."""


class SandboxSpec(Table):
    """Where the agent works and the tests run."""

    backend: Annotated[Literal["local", "docker", "kubernetes"], Flag("--backend")] = "local"
    """local: folders here, isolated by bubblewrap. docker: one container a sandbox. kubernetes: one pod a sandbox."""
    cpus: Annotated[float | None, Flag("--cpus"), Field(gt=0)] = None
    """CPU limit of a sandbox; none by default in docker, as in the official harness; the namespace's in kubernetes."""
    memory_mb: Annotated[int | None, Flag("--memory-mb"), Field(ge=64)] = None
    """Memory limit of a sandbox in MiB, default as for --cpus. Retries after running out double it."""
    disk_mb: Annotated[int | None, Flag("--disk-mb"), Field(ge=64)] = None
    """Disk a sandbox may fill in MiB, the namespace's by default. Retries after running out double it (kubernetes)."""
    solve_network: Annotated[bool, Flag("--solve-network/--no-solve-network")] = False
    """Let the agent's sandbox reach the network; the report says so."""
    registry: Annotated[str | None, Flag("--registry"), How()] = None
    """Pull images through this registry prefix, e.g. mirror.example:5000/hub."""
    platform: Annotated[str, Flag("--platform"), How()] = "linux/amd64"
    """Platform of the images (docker)."""
    keep_images: Annotated[bool, Flag("--keep-images/--no-keep-images"), How()] = False
    """Keep images that this run pulled; else each is removed after its last unit (docker)."""
    disk_budget_gb: Annotated[float | None, Flag("--disk-budget-gb"), How(), Field(gt=0)] = None
    """GiB that images pulled ahead may take; by default half of what is free (docker)."""
    local_images: Annotated[str | None, Flag("--local-images"), How()] = None
    """Folder of unpacked images for backend local: <folder>/<image name, / as __>/testbed is a git checkout."""
    allow_host: Annotated[bool, Flag("--allow-host/--no-allow-host"), How()] = False
    """Let an agent act without isolation: local without bubblewrap, kubernetes where no NetworkPolicy is in force."""
    namespace: Annotated[str | None, Flag("--namespace"), How()] = None
    """Namespace of the sandboxes; by default the one of the kube context, or of the pod that asks (kubernetes)."""
    kube_context: Annotated[str | None, Flag("--kube-context", "--context"), How()] = None
    """Context of the kubeconfig; the current one by default (kubernetes)."""
    node_selector: Annotated[list[str], Flag("--node-selector"), How()] = []
    """Only nodes with this label, as key=value (repeatable); the namespace's selector by default (kubernetes)."""


class GradingSpec(Table):
    """How patches are graded."""

    timeout_s: Annotated[int, Flag("--timeout", "-t", "--max_reward_calc_time"), Field(ge=1)] = 1800
    """Seconds the tests may run; the official limit is 1800."""
    network: Annotated[bool, Flag("--grading-network/--no-grading-network")] = True
    """Let the tests reach the network, as the official containers do (498 of 500 Verified scripts run pip)."""


class RunSpec(Table):
    """The wish: what to evaluate, on what, and how. Written first, read by every step."""

    run_id: Annotated[str | None, Flag("--run-id", "--run_id", "--exp_name")] = None
    """The run's name; the same name again resumes it. By default made from agent, dataset and time."""
    dataset: Annotated[str, Flag("--dataset", "-d")] = "mini"
    """mini, an alias (verified, lite, full, multilingual, multimodal), a hub id, a file of rows, or a task repo."""
    split: Annotated[str, Flag("--split", "-s")] = "test"
    """Split of the dataset."""
    revision: Annotated[str | None, Flag("--revision")] = None
    """Commit, tag or branch of a hub dataset; the resolved commit is recorded."""
    answers: Annotated[str | None, Flag("--answers")] = None
    """A swebench 5 dataset to join classic rows with by id (they lack image, eval_script, log_parser, eval_type)."""
    attempts: Annotated[int, Flag("--attempts", "-n"), Field(ge=1, le=100)] = 1
    """Independent attempts an instance (pass@k)."""
    workers: Annotated[int | None, Flag("--workers", "-j", "--max-workers", "--max_workers"), How(), Field(ge=1)] = None
    """Units that run at a time; by default three quarters of the cores, at least one, at most 24."""
    retries: Annotated[int, Flag("--retries"), How(), Field(ge=0)] = 3
    """Further tries of a step after a failure of the infrastructure."""
    store: Annotated[str, Flag("--store", "--traj_dir", "-o"), How()] = "results"
    """Folder or s3://bucket/prefix that holds all runs."""
    select: SelectSpec = SelectSpec()
    agent: AgentSpec = AgentSpec()
    sandbox: SandboxSpec = SandboxSpec()
    grading: GradingSpec = GradingSpec()

    @field_validator("run_id")
    @classmethod
    def _legal_run_id(cls, value: str | None) -> str | None:
        if value is not None and not is_run_id(value):
            raise ValueError(f"{value!r} is no run id: {RUN_ID_RULE}")
        return value
