"""The chain as values: every program with its flags, every step with what it takes and gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.contracts.data import Answer, Instance, Patch, Plan, RunFile
from swe_argo.steps.contracts.layer import Layer
from swe_argo.steps.contracts.programs import Option, Program
from swe_argo.steps.contracts.record import Raw, Record
from swe_argo.steps.contracts.recording import Recording
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.contracts.twins import ValidatedTwins
from swe_argo.steps.contracts.verdict import EvalScript, GradeRecord, InstanceLog, Report, TestLog

Kind = type[Record] | type[Raw]

TRY = "try"
"""Folder among a step's outputs for what a failed try leaves; its other outputs are written only on success."""
OUTCOME = "outcome"
"""File among a program's outputs that says in a word what it came to."""
PAGE = "report.html"
"""The report's page; other files of a report lie beside it."""
ENGINE_FIELDS = ("retries", "fail_fast")
"""Fields of the spec that an engine heeds and no step: plan, which reads the spec, writes each to a file, as JSON."""
SHARD_COUNT = "shards"
"""File among plan's outputs: into how many parts it cut the plan."""


CANARY_COUNT = "canary"
"""The same: how many units of the canary it has to grade first, in the part of the name ``CANARY_SHARD``."""
CANARY_SHARD = "check"
"""As long as the numbers of shards: names of Workflows have no room for more."""


@dataclass(frozen=True)
class Step:
    """A program that turns files into files: ``python -m swe_argo.steps.<name> --in DIR --out DIR``."""

    name: str
    takes: tuple[Kind, ...]
    gives: tuple[Kind, ...]
    """Files that are there whenever the step exits 0. The first is stored last: where it lies, the step is done."""
    may_take: tuple[Kind, ...] = ()
    """Files that only some units have."""
    may_give: tuple[Kind, ...] = ()
    """Files that only some outcomes have."""

    @property
    def program(self) -> Program:
        """What runs it."""
        return Program(
            self.name,
            f"takes {_names(self.takes)} (optional: {_names(self.may_take)}); "
            f"gives {_names(self.gives)} (by outcome: {_names(self.may_give)})",
            STEP_OPTIONS,
        )


def _names(kinds: Iterable[Kind]) -> str:
    return ", ".join(kind.file for kind in kinds) or "none"


STEP_OPTIONS = (
    Option("in", "folder of the input files", Path, required=True),
    Option("out", "folder for the output files", Path, required=True),
    Option("attempt", "number of the attempt, from 1", int, 1),
    Option("try", "name of this try, unique for the unit", default="0"),
    Option("resource-factor", "multiplies the sandbox's limits", float, 1.0),
    Option("store", "the run's store, for what a killed try is to leave; none: nothing", metavar="URL"),
    Option("kept-as", "name of this try's folder in the store; by default --try", metavar="NAME"),
    Option("tied", "end when standard input closes", bool),
)


SOLVE = Step(
    "solve",
    takes=(RunFile, Instance),
    may_take=(Recording,),
    gives=(SolveRecord, Trajectory, Patch),
    may_give=(Layer,),
)
GRADE = Step(
    "grade",
    takes=(RunFile, Instance, Answer, Patch),
    may_take=(Layer, ValidatedTwins),
    gives=(GradeRecord,),
    may_give=(TestLog, Report, InstanceLog, EvalScript, ValidatedTwins),
)

_STORE = Option("store", "folder or s3://bucket/prefix", required=True)
_RUN = Option("run", "run id", required=True)


def _out(files: tuple[str, ...]) -> Option:
    return Option("out", f"folder for the files {', '.join(files)}", Path, metavar="DIR")


_PARAMETERS = (
    *(
        "dataset",
        "split",
        "select.k",
        "select.validated",
        "agent.name",
        "agent.model",
        "llm.base_url",
        "llm.temperature",
    ),
    *("agent.max_steps", "attempts", "sandbox.backend", "fail_fast", "sandbox.resource_factor", "retries"),
    "stop_on_canary",
)
"""Fields of the spec that plan takes by flags of their own, because a person on Argo chooses them in a form."""


def _field_options() -> tuple[Option, ...]:
    by_name = {field.name: field for field in fields()}
    chosen = [by_name[name] for name in _PARAMETERS]
    return tuple(
        Option(each.option, f"{each.name} where the spec does not say it; empty: nothing", field=each.name)
        for each in chosen
    )


_SUBMITTED = (
    Option("submitted", "the spec comes from a submitter: refuse local files, code and backends of this machine", bool),
    Option(
        "plugins",
        "own agents, backends and families that a submitted spec may name, with commas between them",
        default="",
        metavar="MODULE:NAME",
    ),
)
_PLANNED = (OUTCOME, SHARD_COUNT, CANARY_COUNT, *ENGINE_FIELDS)
PLAN = Program(
    "plan",
    f"a RunSpec -> {RunFile.file}, {Plan.file}, {Instance.file}, {Answer.file} in its store; "
    f"then come {SOLVE.name} and {GRADE.name}",
    (
        Option("run-id", "the run's name, whatever the spec says", field="run_id"),
        Option("store", "the run's store, whatever the spec says", field="store"),
        *_field_options(),
        Option("spec", "a spec, TOML or JSON", Path, metavar="FILE"),
        Option("spec-text", "a spec as text, TOML or JSON; it wins over --spec", default=""),
        Option("set", "a field, whatever else says it", repeated=True, metavar="NAME=VALUE"),
        Option("at-most", "refuse a spec in which this field is more", repeated=True, metavar="NAME=NUMBER"),
        Option("refuse", "refuse a spec that sets this field", repeated=True, metavar="NAME"),
        *_SUBMITTED,
        Option("shard-size", "write shards/ too, of so many units", int, metavar="N"),
        Option("workflow", "the run's Workflow: what others left at work is ended first", metavar="NAME"),
        _out(_PLANNED),
    ),
    writes=_PLANNED,
)
REPORT = Program(
    "report",
    "store -> report/: official summaries, predictions, figures, leaderboard bundle, page, and a comparison on request",
    (
        _STORE,
        _RUN,
        Option(
            "against", "run to compare with; last: the newest finished one of the same spec; empty: none", metavar="RUN"
        ),
        _out((OUTCOME, PAGE)),
    ),
    writes=(OUTCOME, PAGE),
)
CANARY = Program(
    "canary",
    "a run's canary, graded -> whether its machines are to be believed; 64 where they are not and the run stops there",
    (_STORE, _RUN, _out((OUTCOME,))),
    writes=(OUTCOME,),
)
COMPARE = Program(
    "compare",
    "a run's report -> a message: what it resolved, gained and lost, to whoever has a webhook",
    (_STORE, _RUN, _out((OUTCOME,))),
    writes=(OUTCOME,),
)
FINALIZE = Program(
    "finalize",
    "a run's Workflow that ended -> nothing of the run runs on, and a report that says what is known",
    (
        _STORE,
        _RUN,
        Option("workflow", "the run's Workflow", required=True, metavar="NAME"),
        Option("namespace", "namespace of the Workflow; by default the one of this pod"),
        _out((OUTCOME, PAGE)),
        Option("within", "end by then, done or not", float, 570.0, metavar="SECONDS"),
    ),
    writes=(OUTCOME, PAGE),
)

HALT = Program(
    "halt",
    "a Workflow of a training that ended -> what it made ends too, and all that this made",
    (
        Option("workflow", "the Workflow that ended", required=True, metavar="NAME"),
        Option("namespace", "namespace of the Workflow; by default the one of this pod"),
        Option("within", "seconds for them to end", float, 1500.0, metavar="SECONDS"),
    ),
)

_TRAINING = Option("training", "name of the training", required=True, metavar="NAME")
_STEP = Option("step", "number of the step, from 1", int, required=True)
STEP_COUNT = "steps"
"""File among plan_training's outputs: how many steps the training has."""
NEXT_STEP = "next_step"
"""The same: the first that is not learnt yet."""
IS_DUE = "due"
"""File among plan_round's outputs: true, or false where the step is learnt already (its measurement: done, or none)."""
SPEC = "spec"
"""The same: the RunSpec of its run as JSON text, or nothing."""
PLAN_TRAINING = Program(
    "plan_training",
    "a TrainSpec -> train.json in its store: what is trained on, what is measured with",
    (
        _STORE,
        Option("training", "the training's name, whatever the spec says", metavar="NAME"),
        Option("spec", "a spec of a training, TOML or JSON", Path, metavar="FILE"),
        Option("spec-text", "the same as text; it wins over --spec", default=""),
        Option(
            "default", "a field where no spec says it; an empty value: nothing", repeated=True, metavar="NAME=VALUE"
        ),
        Option("set", "a field, whatever else says it", repeated=True, metavar="NAME=VALUE"),
        *_SUBMITTED,
        _out((OUTCOME, STEP_COUNT, NEXT_STEP)),
    ),
    writes=(OUTCOME, STEP_COUNT, NEXT_STEP),
)
PLAN_ROUND = Program(
    "plan_round",
    "a training and what its steps so far came to -> the RunSpec of a step's rollouts, or of its measurement",
    (
        _STORE,
        _TRAINING,
        _STEP,
        Option("held-out", "the run that measures the weights that the step makes, if one is due", bool),
        Option("served", "wait until the training's endpoint answers with its newest weights", bool),
        _out((OUTCOME, IS_DUE, SPEC)),
    ),
    writes=(OUTCOME, IS_DUE, SPEC),
)
LEARN = Program(
    "learn",
    "the rollouts of a step -> new weights, which the proxy serves, a line of checkpoints.jsonl, figures",
    (_STORE, _TRAINING, _STEP, _out((OUTCOME, PAGE))),
    writes=(OUTCOME, PAGE),
)
