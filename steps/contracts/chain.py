"""The chain as values: every step, what it takes and what it gives; command lines and engines come from here."""

from __future__ import annotations

from dataclasses import dataclass

from steps.contracts.data import Answer, Instance, Patch, RunFile, SolveRecord
from steps.contracts.record import Raw, Record
from steps.contracts.trajectory import Recording, Trajectory
from steps.contracts.verdict import EvalScript, GradeRecord, InstanceLog, Report, TestLog

Kind = type[Record] | type[Raw]

TRY = "try"
"""Folder among a step's outputs for what a failed try leaves; its other outputs are written only on success."""
OUTCOME = "outcome"
"""File among a step's outputs that says in a word what it came to."""


@dataclass(frozen=True)
class Step:
    """A program that turns files into files: ``python -m steps.<name> --in DIR --out DIR``."""

    name: str
    takes: tuple[Kind, ...]
    gives: tuple[Kind, ...]
    """Files that are there whenever the step exits 0. The first is stored last: where it lies, the step is done."""
    may_take: tuple[Kind, ...] = ()
    """Files that only some units have."""
    may_give: tuple[Kind, ...] = ()
    """Files that only some outcomes have."""


SOLVE = Step("solve", takes=(RunFile, Instance), may_take=(Recording,), gives=(SolveRecord, Trajectory, Patch))
GRADE = Step(
    "grade",
    takes=(RunFile, Instance, Answer, Patch),
    gives=(GradeRecord,),
    may_give=(TestLog, Report, InstanceLog, EvalScript),
)
