"""A unit in Docker beside swebench's own ``run_instance``: CPU seconds of all that has a part in it.

Both grade the reference patches of the same instances of mini, one after the other, on a Docker engine of our own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.datasets.load import load
from swe_argo.steps.store import open_store
from tests.docker_engine import Engine, NoEngineError
from tests.paths import ROOT

UNITS = 8
HARNESS = ("docker", "datasets", "modal", "git", "ghapi", "chardet")
"""What the harness imports to grade in Docker."""
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
NAME = f"swe-argo-bench-{os.getpid()}"
PEER = """
import json, sys
from swebench.harness.run_evaluation import run_instances
rows = json.load(open(sys.argv[1]))
run_instances({row["instance_id"]: {"instance_id": row["instance_id"], "model_name_or_path": "gold",
    "model_patch": row["patch"]} for row in rows}, rows, 1, sys.argv[2], 1800)
"""


def measure() -> dict[str, float]:
    """Nothing, and a word on stderr, where there is no Docker engine, no account of CPU, or no package of the harness.

    ``docker_unit_cpu_s`` and ``harness_unit_cpu_s``: the runner, the engine and what runs in the container, over
    eight units less over none; the ratio is of that. ``*_runner_*``, ``*_engine_*``, ``*_container_*`` are its parts.
    """
    missing = [name for name in HARNESS if importlib.util.find_spec(name) is None]
    if missing or not ACCOUNTS.joinpath("cpuacct.usage").exists():
        why = f"the harness needs {', '.join(missing)}" if missing else f"no CPU accounts in {ACCOUNTS}"
        sys.stderr.write(f"docker_unit: not measured, {why}\n")
        return {}
    with tempfile.TemporaryDirectory() as name:
        try:
            with _engine(Path(name) / "engine") as engine:
                return _measure(engine, Path(name))
        except NoEngineError as reason:
            sys.stderr.write(f"docker_unit: not measured, no Docker engine: {reason}\n")
            return {}


@dataclass(frozen=True)
class Spent:
    """CPU seconds, children included."""

    runner: float
    engine: float
    container: float

    def a_unit(self, none: Spent) -> Spent:
        """Of what ``UNITS`` took, the part of one; ``none`` is what it took to do nothing."""
        return Spent(*((mine - less) / UNITS for mine, less in zip(self.parts, none.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, float, float]:
        """Runner, engine, container."""
        return self.runner, self.engine, self.container


def _measure(engine: Engine, folder: Path) -> dict[str, float]:
    import docker

    from tests.base_image import base_image

    with closing(docker.DockerClient(engine.host)) as client:
        environment = os.environ | {"DOCKER_HOST": engine.host, "SWE_ARGO_MINI_BASE": base_image(client)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    rows = load("mini", "test").rows[:UNITS]
    chosen = [word for row in rows for word in ("--instance", row["instance_id"])]

    def ours(run: str) -> Spent:
        words = ["--store", str(folder), "--run-id", run, "--backend", "docker", "-j", "1", *chosen]
        return _spent(["-m", "swe_argo.workflows.cli.main", "run", "--agent", "gold", *words], folder, environment)

    def theirs(run: str, those: list[dict[str, Any]]) -> Spent:
        (folder / "rows.json").write_text(json.dumps(those))
        (folder / "peer.py").write_text(PEER)
        return _spent([str(folder / "peer.py"), str(folder / "rows.json"), run], folder, environment)

    ours("first")  # makes the images
    mine = ours("second").a_unit(ours("second"))  # the second time there is nothing left to do
    harness = theirs("run", rows).a_unit(theirs("none", []))
    _check(folder, [row["instance_id"] for row in rows])
    figures = {"docker_unit_to_harness_cpu": sum(mine.parts) / sum(harness.parts)}
    for name, spent in (("docker_unit", mine), ("harness_unit", harness)):
        figures[f"{name}_cpu_s"] = sum(spent.parts)
        for part, seconds in zip(("runner", "engine", "container"), spent.parts, strict=True):
            figures[f"{name}_{part}_cpu_s"] = seconds
    return figures


def _check(folder: Path, ids: list[str]) -> None:
    store = open_store(str(folder))
    for instance_id in ids:
        report = json.loads((folder / "logs/run_evaluation/run/gold" / instance_id / "report.json").read_text())
        grade = GradeRecord.from_bytes(store.get(key(GradeRecord, "second", instance_id, 1)))
        if not (grade.resolved and report[instance_id]["resolved"]):
            raise RuntimeError(f"the reference patch of {instance_id} was not resolved")


def _spent(words: list[str], folder: Path, environment: dict[str, str]) -> Spent:
    before = _read()
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = _read()
    return Spent(*(now - then for now, then in zip(after, before, strict=True)))


def _read() -> tuple[float, float, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    accounts = [int((ACCOUNTS / NAME / part / "cpuacct.usage").read_text()) / 1e9 for part in ("engine", "containers")]
    return used.ru_utime + used.ru_stime, accounts[0], accounts[1]


@contextmanager
def _engine(folder: Path) -> Iterator[Engine]:
    """An engine that has an account of its own, as have its containers."""
    places = [ACCOUNTS / NAME / part for part in ("engine", "containers")]
    own = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    home = ACCOUNTS / next(place for _, kinds, place in own if "cpuacct" in kinds.split(",")).lstrip("/")
    engine = Engine(folder, options=("--cgroup-parent", f"/{NAME}/containers"))
    try:
        for place in places:
            place.mkdir(parents=True)
    except OSError as error:
        raise NoEngineError(f"no account of its CPU can be made: {error}") from error
    try:
        (places[0] / "cgroup.procs").write_text(str(os.getpid()))
        try:
            engine.start()
        finally:
            (home / "cgroup.procs").write_text(str(os.getpid()))
        yield engine
    finally:
        engine.remove()
        for base in ACCOUNTS.parent.glob(f"*/{NAME}"):  # the engine makes it for all that can be counted or limited
            for place in (base / "engine", base / "containers", base):
                with suppress(OSError):
                    place.rmdir()
