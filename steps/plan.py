"""RunSpec -> RunFile, Plan, Instance x n, Answer x n: what is to be done, and for each unit the stage it begins at."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steps.agents import given
from steps.contracts.chain import GRADE, SOLVE
from steps.contracts.data import (
    Answer,
    DatasetLock,
    GradeRecord,
    Instance,
    Patch,
    Plan,
    RunFile,
    SolveRecord,
    Stage,
    Unit,
    key,
)
from steps.contracts.run import RunSpec
from steps.datasets import load, mini, rows, select
from steps.entry import run_program
from steps.errors import ConfigError
from steps.sandbox import ready
from steps.settings import settings
from steps.store import Store, open_store


def plan(spec: RunSpec) -> Plan:
    """Resolve the wish, refuse what cannot work, and write the run's first files. The same wish again resumes.

    Nothing is written before everything is known to be right. Raises ConfigError, InfraError.
    """
    if spec.run_id is None:
        raise ConfigError("a run needs a name", field="run_id")
    store = open_store(spec.store, create=True)
    before = _earlier(store, spec.run_id)
    hashes = given.input_hashes(spec)
    if before:
        _refuse_changes(before, spec, hashes)
    revision = spec.revision or (before.dataset.revision if before else None)
    loaded = load.load(spec.dataset, spec.split, revision=revision, answers=spec.answers)
    chosen, notices = select.select(loaded.rows, spec.select, loaded.by_id)
    _refuse_ungradeable(chosen)
    lock = DatasetLock(
        name=loaded.name,
        split=loaded.split,
        revision=loaded.revision,
        rows=len(chosen),
        sha256=rows.digest(chosen),
    )
    if before and before.dataset.sha256 != lock.sha256:
        raise ConfigError(
            f"the rows of {loaded.name} changed since run {spec.run_id!r} began; use another run id", field="dataset"
        )
    known = [row["instance_id"] for row in (*loaded.rows, *loaded.by_id)]
    work = given.prepare(spec, store, chosen, known)
    machines = _machines(spec, loaded.name, chosen)
    notices = [*loaded.notices, *notices, *work.notices, *machines.notices]
    run = RunFile(
        run_id=spec.run_id,
        spec=spec,
        dataset=lock,
        model=work.model,
        versions=before.versions if before else _versions(),
        created_at=before.created_at if before else datetime.now(UTC).isoformat(timespec="seconds"),
        input_hashes=hashes,
        image_digests=machines.digests,
    )
    items = {key(RunFile, run.run_id): run.to_bytes()}
    for row in chosen:
        for datum in (rows.instance(row, spec.agent.hints), rows.answer(row)):
            items[key(type(datum), run.run_id, row["instance_id"])] = datum.to_bytes()
    done = _done(store, run.run_id) if before else set()
    items |= {name: data for name, data in work.files.items() if name not in done}
    units = _units(spec, run.run_id, chosen, done | set(work.files))
    result = Plan(run_id=run.run_id, units=units, notices=notices)
    store.put_many(items)
    store.put(key(Plan, run.run_id), result.to_bytes())
    return result


def _earlier(store: Store, run_id: str) -> RunFile | None:
    try:
        return RunFile.from_bytes(store.get(key(RunFile, run_id)))
    except FileNotFoundError:
        return None


def _refuse_changes(before: RunFile, spec: RunSpec, hashes: dict[str, str]) -> None:
    old, new = given.wish(before.spec) | before.input_hashes, given.wish(spec) | hashes
    changed = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
    if changed:
        told = ", ".join(f"{name} was {old.get(name)!r}, now {new.get(name)!r}" for name in changed)
        raise ConfigError(
            f"run {before.run_id!r} exists with another wish ({told}); use another run id", field="run_id"
        )


def _refuse_ungradeable(chosen: list[dict[str, Any]]) -> None:
    reasons = {row["instance_id"]: reason for row in chosen if (reason := rows.ungradeable(row))}
    if reasons:
        first, reason = next(iter(reasons.items()))
        raise ConfigError(
            f"{len(reasons)} of {len(chosen)} instances cannot be graded yet, {first} for one: {reason}; "
            f"leave them out: --exclude {' --exclude '.join(reasons)}",
            field="dataset",
        )


def _machines(spec: RunSpec, dataset: str, chosen: list[dict[str, Any]]) -> ready.Ready:
    """Make the images that come with this project, then ask the backend whether the run can have its sandboxes."""
    images = {row["instance_id"]: row["image"] for row in chosen}
    if dataset == "mini" and spec.sandbox.backend == "local" and spec.sandbox.local_images is None:
        mini.prepare(settings().local_images, images)
    if dataset == "mini" and spec.sandbox.backend == "docker":
        from steps.sandbox.docker import engine

        mini.build(engine.client(), list(images), settings().mini_base_image)
    wanted = ready.Wanted(
        images=_unique(images.values()),
        acts=spec.agent.name == "replay",
        solves=spec.agent.name in ("idle", "replay"),
        grading_network=spec.grading.network,
        timeout_s=max(spec.grading.timeout_s, spec.agent.timeout_s),
    )
    return ready.ready(spec.sandbox, wanted)


def _unique(names: Any) -> list[str]:
    return list(dict.fromkeys(names))


def _done(store: Store, run_id: str) -> set[str]:
    return set(store.keys(f"runs/{run_id}/units/"))


def _units(spec: RunSpec, run_id: str, chosen: list[dict[str, Any]], there: set[str]) -> list[Unit]:
    """One rule for fresh, resumed and given: a unit begins at the first stage whose result is missing.

    Ordered by repository, then by the dataset's order, so that units which share image layers are near in time.
    """
    first = {repo: place for place, repo in enumerate(_unique(row["repo"] for row in chosen))}
    units = []
    for row in sorted(chosen, key=lambda row: first[row["repo"]]):
        for attempt in range(1, spec.attempts + 1):
            name = (run_id, row["instance_id"], attempt)
            solves = spec.agent.name in ("idle", "replay")
            if key(GradeRecord, *name) in there:
                begins = Stage.NONE
            elif key(Patch, *name) in there and (not solves or key(SolveRecord, *name) in there):
                begins = Stage.GRADE
            else:
                begins = Stage.SOLVE
            units.append(
                Unit(
                    instance_id=row["instance_id"],
                    attempt=attempt,
                    begins=begins,
                    repo=row["repo"],
                    image=row["image"],
                )
            )
    return units


def _versions() -> dict[str, str]:
    return {
        "swe-argo": version("swe-argo"),
        "swebench": version("swebench"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "code": _code_version(),
    }


def _code_version() -> str:
    """The commit of this project where it runs from a checkout, marked when there are changes on top."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return settings().revision or "released"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def main() -> None:
    """``python -m steps.plan --spec FILE``: FILE is a RunSpec as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m steps.plan",
        description=f"a RunSpec -> {RunFile.file}, {Plan.file}, {Instance.file}, {Answer.file} in its store; "
        f"then come {SOLVE.name} and {GRADE.name}",
    )
    parser.add_argument("--spec", type=Path, required=True, help="the wish, a JSON file")
    spec = RunSpec.model_validate(json.loads(parser.parse_args().spec.read_bytes()))

    def work() -> None:
        plan(spec)

    run_program("plan", work)


if __name__ == "__main__":
    main()
