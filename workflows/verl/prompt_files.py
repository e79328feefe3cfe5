"""Split of a planned run's instances into train.parquet and val.parquet."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swe_argo.steps.agents import first_messages
from swe_argo.steps.contracts.data import Instance, RunFile
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.training.verl_rows import PromptedInstance, RowSource, loop_of, write_rows
from swe_argo.workflows.rollouts.rollout_runs import FILES, TRAINING, VALIDATION


@dataclass(frozen=True)
class VerlOptions:
    """Options of the export, in addition to a spec."""

    style: str | None = None
    """Prompt style from ``first_messages.STYLES``; by default tools, for a scaffold's run that scaffold's own."""
    val_ratio: float = 0.2
    """Share of the instances that is held out, rounded down."""
    seed: int = 42
    """Seed of the shuffle before the split."""
    out: Path | None = None
    force: bool = False


def write_prompt_files(
    run: RunFile, instances: Sequence[Instance], options: VerlOptions, store: str, folder: Path
) -> dict[str, int]:
    """Write both files into ``folder``; return the number of rows of each. A file without rows is not written.

    ``store``: address of the store with the instances, for the rows. Raises ConfigError if an option is wrong.
    """
    agent = run.spec.agent
    scaffold = first_messages.own_style(agent)
    style = scaffold or first_messages.parse_style(options.style or first_messages.TOOLS)
    source = RowSource(run.dataset.name, run.run_id, store, loop_of(scaffold))
    by_id = {instance.instance_id: instance for instance in instances}
    splits = split_ids(list(by_id), options.val_ratio, options.seed)
    make_prompt = partial(
        first_messages.first_messages,
        style,
        agent,
        instruction=run.instruction,
        words=run.words,
        fn_calling=bool(run.fn_calling),
    )
    for split, ids in splits.items():
        prompted = [PromptedInstance(instance_id, make_prompt(by_id[instance_id])) for instance_id in ids]
        if prompted:
            write_rows(folder / FILES[split], source, split, prompted)
    return {split: len(ids) for split, ids in splits.items()}


def split_ids(ids: Sequence[str], val_ratio: float, seed: int) -> dict[str, list[str]]:
    """Shuffle the ids and divide them into the two splits. Raises ConfigError if ``val_ratio`` is not between 0 and 1.

    The same ids in the same order and the same seed give the same splits on every machine.
    """
    if not 0 <= val_ratio <= 1:
        raise ConfigError(f"{val_ratio:g} is not between 0 and 1", field="--val-ratio")
    shuffled = list(ids)
    random.Random(seed).shuffle(shuffled)
    held_out = int(round(len(shuffled) * val_ratio, 6))  # 0.29 of 100 is 28.999999999999996
    return {TRAINING: shuffled[held_out:], VALIDATION: shuffled[:held_out]}


def describe_empty_files(rows: dict[str, int], val_ratio: float) -> list[str]:
    """Return a note about each file that is missing although it was requested."""
    expected = {TRAINING: val_ratio < 1, VALIDATION: val_ratio > 0}
    return [
        f"{FILES[split]} has no instance: --val-ratio is {val_ratio:g}, of {sum(rows.values())} instances"
        for split, number in rows.items()
        if not number and expected[split]
    ]
