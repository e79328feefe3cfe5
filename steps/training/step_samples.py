"""The run of a step -> the batch that is learnt, and what is known of its rollouts."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.train_spec import LossSpec
from swe_argo.steps.store import Store
from swe_argo.steps.training import sample_files
from swe_argo.steps.training.advantages import Group, groups_of
from swe_argo.steps.training.datums import LearnedSample, learned_sample
from swe_argo.steps.training.export_samples import NO_CALLS, NO_TOKENS, nothing, write_some_samples
from swe_argo.steps.training.sample_files import Sample, SampledUnit, read_samples

log = logging.getLogger(__name__)
UNKNOWN = "unknown"
"""Version of weights that the endpoint did not tell."""
_WITH_VERDICT = (NO_TOKENS, NO_CALLS)
"""Why units with a verdict have no samples: these are no failures of the world."""


@dataclass
class Rollout:
    """What the samples of one unit come to."""

    prompt_tokens: int = 0
    """Tokens that others wrote; what a prompt repeats of an earlier one is not counted again."""
    sampled_tokens: int = 0
    logprob: float = 0.0
    """Sum over the sampled tokens."""
    calls: Counter[str] = field(default_factory=Counter)
    """Version of the weights -> calls that it answered."""

    def add(self, sample: Sample) -> None:
        """Count one of its samples."""
        sampled = int(np.count_nonzero(sample.sampled))
        self.sampled_tokens += sampled
        self.prompt_tokens += len(sample.tokens) - sampled
        self.logprob += float(np.sum(sample.logprobs, dtype=np.float64, where=sample.sampled))
        self.calls.update(span.weights or UNKNOWN for span in sample.calls)


@dataclass(frozen=True)
class Batch:
    """What is sent, in the order of the run's units."""

    samples: list[LearnedSample]
    rollouts: int
    """Rollouts that it is of."""
    sha256: str


@dataclass(frozen=True)
class Collected:
    """All that a step learns from its run."""

    plan: Plan
    rollouts: dict[SampledUnit, Rollout]
    """Of every unit that has a verdict and tokens, in the plan's order."""
    groups: list[Group]
    batch: Batch
    failed: int
    """Rollouts without a verdict."""
    seconds: float
    """From the first rollout's beginning to the end of the last one's grading."""


def collect(store: Store, run: RunFile, plan: Plan, loss: LossSpec) -> Collected:
    """Read a run that is done. Its samples are written to a file of this machine, always the same, and not kept.

    Raises ConfigError where the endpoint told the tokens of no rollout; InfraError.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / sample_files.FILE
        written = write_some_samples(store, run, plan, path)
        if written.refused and not written.units:
            raise nothing(run, written)
        rollouts = rollouts_of(path)
        for notice in written.notices:
            log.warning("run %s: %s", run.run_id, notice)
        began = min((begin for begin, _ in written.spans), default=0.0)
        spent = max((begin + length for begin, length in written.spans), default=0.0) - began
        if untold := sum(rollout.calls[UNKNOWN] for rollout in rollouts.values()):
            log.warning("run %s: %d calls do not tell which weights answered them", run.run_id, untold)
        failed = sum(len(names) for reason, names in written.left_out.items() if reason not in _WITH_VERDICT)
        groups = groups_of(rollouts, loss)
        return Collected(plan, rollouts, groups, batch_of(path, rollouts, groups, loss), failed, spent)


def rollouts_of(path: Path) -> dict[SampledUnit, Rollout]:
    """Every unit of a file of samples, in its order."""
    rollouts: dict[SampledUnit, Rollout] = defaultdict(Rollout)
    for sample in read_samples(path):
        rollouts[sample.unit].add(sample)
    return rollouts


def batch_of(path: Path, rollouts: dict[SampledUnit, Rollout], groups: list[Group], loss: LossSpec) -> Batch:
    """Read the samples a second time, for no advantage is known before all rewards are."""
    advantages = _scaled(groups, rollouts, loss)
    digest, learned, units = hashlib.sha256(), [], set()
    for sample in read_samples(path):
        advantage = advantages.get(sample.unit, 0.0)
        if advantage and (one := learned_sample(sample, advantage)):
            learned.append(one)
            units.add(sample.unit)
            digest.update(_bytes(sample, advantage))
    return Batch(learned, len(units), digest.hexdigest())


def _scaled(groups: list[Group], rollouts: dict[SampledUnit, Rollout], loss: LossSpec) -> dict[SampledUnit, float]:
    """Unit -> advantage of each of its sampled tokens. What is divided by counts the groups that differ, whole: a
    rollout of which nothing is learnt would make the others weigh more by its absence."""
    differing = [group for group in groups if not group.is_constant]
    members = [unit for group in differing for unit in group.rewards_G]
    sizes = {"sum": 1, "rollouts": len(members), "tokens": sum(rollouts[unit].sampled_tokens for unit in members)}
    scale = max(1, sizes[loss.batch_scale])
    return {
        unit: float(advantage) / scale
        for group in differing
        for unit, advantage in zip(group.rewards_G, group.advantages_G, strict=True)
    }


def _bytes(sample: Sample, advantage: float) -> bytes:
    name = f"{sample.unit.group}#{sample.unit.attempt}.{sample.number} {advantage!r} {len(sample.tokens)}\n"
    arrays = (sample.tokens.astype("<i4"), sample.sampled.astype("u1"), sample.logprobs.astype("<f4"))
    return b"".join([name.encode(), *(each.tobytes() for each in arrays)])
