"""Export of a dataset or run for verl: train.parquet, val.parquet, and beside them a store for grading.

The store has the layout of a planned run that has not started. So all settings of a run's sandboxes and grading apply
to rollouts, and a row contains no more of an instance than its name and its issue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from swe_argo.steps.agents import first_messages
from swe_argo.steps.agents.formats.writers import put_when_whole
from swe_argo.steps.agents.prompts import run_prompts
from swe_argo.steps.contracts.agent_spec import AgentSpec, OwnAgent, agent_of
from swe_argo.steps.contracts.data import Answer, Instance, Plan, RunFile, Stage
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.datasets.bucket_inputs import fetch_inputs
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.resolve import Resolution, resolve
from swe_argo.steps.planning.write import write
from swe_argo.steps.reports.text.formatting import count
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.store.runs import record_of
from swe_argo.steps.training.verl_rows import TOOL_AGENT
from swe_argo.workflows.rollouts.kept_runs import FILES
from swe_argo.workflows.verl.prompt_files import VerlOptions, describe_empty_files, write_prompt_files

DATASET: Final = "MariusHobbhahn/swe-bench-verified-mini"
SAMPLE: Final = 12
"""Number of instances of ``DATASET`` if no dataset is named: with the default held-out share, 10 and 2."""
SAMPLE_BACKEND: Final = "docker"
"""Default backend of the sample: the one that has the official images without set-up."""
RUN: Final = "rollouts"
STORE: Final = "store"
_SAMPLE_FOLDER: Final = "swebench_mini"


@dataclass(frozen=True)
class VerlFiles:
    """The written files. ``rows``: split -> number of rows; a split without rows has no file."""

    path: Path
    rows: dict[str, int]
    notices: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        """The number of rows per file, as text."""
        parts = [f"{count(n, 'row')} in {self.path / FILES[split]}" for split, n in self.rows.items() if n]
        return f"{', '.join(parts)}; what grades them in {self.path / STORE}"


def sample_spec(spec: RunSpec) -> RunSpec:
    """Return the spec of the sample, with its default backend if none was chosen."""
    if "backend" in spec.sandbox.model_fields_set:
        return spec
    sandbox = spec.sandbox.model_copy(update={"backend": SAMPLE_BACKEND})
    return spec.model_copy(update={"sandbox": sandbox})


def export_dataset(spec: RunSpec, options: VerlOptions) -> VerlFiles:
    """Plan the instances that the spec selects, and write them; the output appears atomically at ``options.out``.

    The limits and prompts of ``spec.agent`` apply; ``spec.store`` is only read for validations. Raises as plan does.
    """
    style = first_messages.style_named(options.style or first_messages.TOOLS)
    target = (options.out or _usual_folder(spec.dataset)).expanduser().absolute()
    spec = spec.model_copy(
        update={
            "run_id": RUN,
            "agent": _agent(style, spec.agent),
            "llm": LlmSpec(),
            "attempts": 1,
            "canary": 0,
        }
    )
    with put_when_whole(target, force=options.force) as part:
        part.mkdir()
        resolution = _plan(spec, style, str(target / STORE))
        store = open_store(str(part / STORE), create=True)
        write(store, resolution)
        instances = _read_instances(store, RUN, [row["instance_id"] for row in resolution.rows])
        rows = write_prompt_files(resolution.run, instances, options, str(target / STORE), part)
    return VerlFiles(target, rows, [*resolution.plan.notices, *describe_empty_files(rows, options.val_ratio)])


def export_run(store: Store, run_id: str, options: VerlOptions) -> VerlFiles:
    """Export the instances of a run of ``store``, without the hints that it may have shown.

    Raises ConfigError if there is no such run, or ``options.out`` exists or is not writable; InfraError for the store.
    """
    run, plan = record_of(store, RunFile, run_id), record_of(store, Plan, run_id)
    own = first_messages.own_style(run.spec.agent)
    style = (
        own
        if own and options.style in (None, own)
        else first_messages.style_named(options.style or first_messages.TOOLS)
    )
    target = (options.out or Path("exports") / run_id / "verl").expanduser().absolute()
    if style != own and run.spec.agent.name != _name_of(style):
        run = _worded(run, _agent(style, AgentSpec()), style)
    agent = run.spec.agent.model_copy(update={"hints": False, "iterative": False})
    spec = run.spec.model_copy(update={"agent": agent, "attempts": 1, "store": str(target / STORE)})
    run = run.model_copy(update={"spec": spec})
    ids = list(dict.fromkeys(unit.instance_id for unit in plan.units))
    with put_when_whole(target, force=options.force) as part:
        part.mkdir()
        into = open_store(str(part / STORE), create=True)
        _copy(store, into, run, plan, ids)
        rows = write_prompt_files(run, _read_instances(into, run_id, ids), options, str(target / STORE), part)
    return VerlFiles(target, rows, describe_empty_files(rows, options.val_ratio))


def _name_of(style: str) -> str:
    return style if first_messages.is_scaffold_style(style) else TOOL_AGENT


def _agent(style: str, stated: AgentSpec) -> AgentSpec:
    """Return the agent for a style, with the settings of ``stated`` except identity and those without use here."""
    left = {name: getattr(stated, name) for name in stated.model_fields_set}
    if style != stated.name:
        left = {name: value for name, value in left.items() if value != getattr(AgentSpec(), name)}
    name = _name_of(style)
    own = OwnAgent(asks_model=True, calls_tools=True) if name == TOOL_AGENT else None
    never = {"model": None, "hints": False, "iterative": False, "issue_images": False}
    return AgentSpec.model_validate({**left, "name": name, "own": own, **never})


def _plan(spec: RunSpec, style: str, place: str) -> Resolution:
    """Plan as for every run, but without testing an endpoint: verl's own server is used."""
    silent = AgentSpec(name=TOOL_AGENT, timeout_s=spec.agent.timeout_s)
    planned = spec.model_copy(update={"agent": silent})
    with fetch_inputs(planned) as here:
        resolution = resolve(planned, here, open_store(spec.store))
    run = resolution.run.model_copy(update={"spec": spec.model_copy(update={"store": place}), "model": ""})
    return replace(resolution, run=_worded(run, spec.agent, style))


def _worded(run: RunFile, agent: AgentSpec, style: str) -> RunFile:
    """Return the run with another agent and its prompts.

    A scaffold's tool calls are text by default: then conversations are only appended to, with one sequence of tokens.
    """
    instruction, words = "", ""
    if first_messages.is_scaffold_style(style):
        instruction, _ = run_prompts.read_instruction(agent, [], None)
        words, _ = run_prompts.read_scaffold_words(agent)
    spec = run.spec.model_copy(update={"agent": agent})
    calls = agent.use_fn_calling == "true"
    named: dict[str, object] = {"program": None, "speaks": []}
    named |= {"model": agent_of(agent).name, "fn_calling": calls, "instruction": instruction, "words": words}
    return run.model_copy(update={"spec": spec, **named})


def _read_instances(store: Store, run_id: str, ids: Sequence[str]) -> list[Instance]:
    names = [key(Instance, run_id, each) for each in ids]
    contents = store.get_many(names)
    return [Instance.from_bytes(contents[name]) for name in names]


def _copy(store: Store, into: Store, run: RunFile, plan: Plan, ids: Sequence[str]) -> None:
    contents = store.get_many(key(kind, run.run_id, each) for each in ids for kind in (Instance, Answer))
    files = {key(RunFile, run.run_id): run.to_bytes()}
    for each in ids:
        name, answer = key(Instance, run.run_id, each), key(Answer, run.run_id, each)
        if name not in contents or answer not in contents:
            raise ConfigError(f"run {run.run_id!r} lacks {name if name not in contents else answer}", field="run")
        shown = Instance.from_bytes(contents[name]).model_copy(update={"hints_text": None, "context": None})
        files |= {name: shown.to_bytes(), answer: contents[answer]}
    first = {unit.instance_id: unit for unit in reversed(plan.units)}
    units = [first[each].model_copy(update={"attempt": 1, "begins": Stage.SOLVE}) for each in ids]
    into.put_many(files)
    into.put(key(Plan, run.run_id), Plan(run_id=run.run_id, units=units).to_bytes())


def _usual_folder(dataset: str) -> Path:
    word = Path(dataset).name.split(".")[0].partition(":")[0].lower()
    name = _SAMPLE_FOLDER if dataset == DATASET else re.sub(r"[^a-z0-9]+", "_", word).strip("_") or "verl"
    return Path("~/data") / name
