"""What a run comes to where nothing happens to it: on this machine, in folders. The ruler for every run on Argo."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.store import open_store
from tests.cluster.installed_chart import figures, verdicts
from tests.workflows.command import swe_argo


@dataclass(frozen=True)
class RunOutcome:
    """All that a run decided, its name aside: per unit, as figures, and the bytes of the official summary."""

    units: dict[str, object]
    figures: dict[str, object]
    official: bytes

    @classmethod
    def of(cls, store: str, run: str) -> RunOutcome:
        """What the report in this store says."""
        opened = open_store(store)
        (name,) = [key for key in opened.keys(f"runs/{run}/report/") if key.endswith(f".{run}.json")]
        text = json.dumps(figures(store, run), default=str, sort_keys=True).replace(run, "RUN")
        return cls(verdicts(store, run), json.loads(text), opened.get(name))


def local(folder: Path, run: str, *flags: str) -> RunOutcome:
    """The same spec by ``swe-argo run --backend local``."""
    result = swe_argo("run", "--store", str(folder), "--run-id", run, "--backend", "local", "-j", "2", *flags)
    assert result.returncode == 0, result.stdout + result.stderr
    return RunOutcome.of(str(folder), run)


def assert_same_outcome(one: RunOutcome, other: RunOutcome) -> None:
    """Fails naming what differs: units first, for the rest follows from them."""
    for name in sorted(one.units | other.units):
        mine, theirs = one.units.get(name), other.units.get(name)
        assert mine == theirs, f"{name} differs:\n  here:        {mine}\n  undisturbed: {theirs}"
    for field in sorted(one.figures | other.figures):
        mine, theirs = one.figures.get(field), other.figures.get(field)
        assert mine == theirs, f"the report's {field} differs:\n  here:        {mine}\n  undisturbed: {theirs}"
    assert one.official == other.official, f"the official summary differs:\n{one.official!r}\n{other.official!r}"
