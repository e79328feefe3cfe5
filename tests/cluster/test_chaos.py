"""Runs in pods that the world disturbs: they end with the report of an undisturbed one, and leave nothing."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.store import open_store
from tests.cluster.disturbances import dataset, delete, eats_disk, evict, recordings
from tests.cluster.installed_chart import PATIENCE_S, InstalledChart, figures, leftovers, settles, verdicts
from tests.workflows.command import QUICK, begin, failures, ids, kill, official, steps_of, summary, swe_argo

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ONE, TWO, THREE, FOUR = QUICK
MODEL = "lab__model"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def run_flags(tmp_path_factory: pytest.TempPathFactory, mini_images: None) -> list[str]:
    """Four units whose agents and tests take their time: there is a middle to be disturbed in."""
    folder = tmp_path_factory.mktemp("runs")
    data = dataset(folder, dict.fromkeys(QUICK, "sleep 20"))
    acts = recordings(folder / "trajectories", QUICK, "sleep 20")
    words = ["--run-id", "r", "--backend", "kubernetes", "--dataset", data, "--trajectories", acts, "-j", "4"]
    return [*words, "--confirm", "never"]  # every confirmation is several runs of these slow tests


@pytest.fixture(scope="module")
def undisturbed_store(tmp_path_factory: pytest.TempPathFactory, installed: InstalledChart, run_flags: list[str]) -> str:
    """The store of an undisturbed run."""
    store = str(tmp_path_factory.mktemp("calm"))
    result = swe_argo("run", "--store", store, *run_flags, env=installed.environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(store, "r").headline.resolved == 4
    assert not failures(open_store(store), "r")
    return store


@pytest.fixture
def start(installed: InstalledChart) -> Iterator[Start]:
    """Begins a run there. What a failed test leaves running is stopped: the next one wants the run's name."""
    processes: list[subprocess.Popen[str]] = []

    def started(*words: str) -> subprocess.Popen[str]:
        processes.append(begin(*words, env=installed.environment))
        return processes[-1]

    yield started
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def assert_undisturbed(store: str, undisturbed_store: str) -> None:
    """The official files to the byte, every verdict, and every figure that is no time."""
    assert official(store, "r", MODEL) == official(undisturbed_store, "r", MODEL)
    assert verdicts(store, "r") == verdicts(undisturbed_store, "r")
    assert figures(store, "r") == figures(undisturbed_store, "r")


def failed(store: str) -> Counter[tuple[str, str, FailureClass]]:
    """(step, instance, class) of the failed tries."""
    lost_tries = failures(open_store(store), "r")
    return Counter((failure.step, failure.instance_id, failure.failure_class) for failure in lost_tries)


def test_lost_sandboxes_cost_one_try(
    tmp_path: Path, installed: InstalledChart, run_flags: list[str], undisturbed_store: str, start: Start
) -> None:
    store = str(tmp_path)
    runner = start("run", "--store", store, *run_flags)
    acts = {(ONE, "solve"): delete, (TWO, "solve"): evict, (THREE, "grade"): evict, (FOUR, "grade"): delete}

    def disturb() -> bool:
        """Each as soon as it is there: one may have come to its end when another begins."""
        for place, pod in installed.running().items():
            if act := acts.pop(place, None):
                act(installed, pod)
        return not acts

    assert settles(disturb), acts
    output, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 0, output
    tries, lost = failed(store), FailureClass.SANDBOX_LOST
    # The object of an evicted pod says so, but the kubelet soon removes it: who looks later finds the pod deleted.
    for unit in (("solve", TWO), ("grade", THREE)):
        tries[*unit, lost] += tries.pop((*unit, FailureClass.EVICTED), 0)
    assert tries == {
        ("solve", ONE, lost): 1,
        ("solve", TWO, lost): 1,
        ("grade", THREE, lost): 1,
        ("grade", FOUR, lost): 1,
    }, [failure.reason for failure in failures(open_store(store), "r")]
    assert_undisturbed(store, undisturbed_store)
    assert leftovers(installed) == []


def test_cluster_outages_cost_time_only(
    tmp_path: Path, installed: InstalledChart, run_flags: list[str], undisturbed_store: str, start: Start
) -> None:
    store = str(tmp_path)
    runner = start("run", "--store", store, *run_flags)
    installed.busy(TWO, "solve")
    for name in ("kubelet", "kube-apiserver", "containerd"):
        result = installed.cluster.command("restart", name, "4")
        assert result.returncode == 0, f"{name}: {result.stderr}"
        assert runner.poll() is None, f"the run was over before {name} was back"
    output, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 0, output
    assert_undisturbed(store, undisturbed_store)
    assert leftovers(installed) == []


def test_killed_run_is_resumed(
    tmp_path: Path, installed: InstalledChart, run_flags: list[str], undisturbed_store: str, start: Start
) -> None:
    store = str(tmp_path)
    runner = start("run", "--store", store, *run_flags)
    installed.busy(ONE, "solve")
    runner.send_signal(signal.SIGINT)
    output, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 130, output
    assert not failed(store)
    assert leftovers(installed) == []

    runner = start("run", "--store", store, *run_flags)
    installed.busy(ONE, "grade")
    for pid in (runner.pid, *steps_of(store)):
        kill(pid)
    runner.communicate()
    remains = {Path(name).parts[0] for name in installed.remains()}
    assert remains == {"/", "pod", "lease.coordination.k8s.io"}, "its folders, its sandboxes and their owner"

    again = swe_argo("run", "--store", store, *run_flags, env=installed.environment)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 units to do" in again.stdout
    assert_undisturbed(store, undisturbed_store)
    assert leftovers(installed) == []


def test_sandbox_out_of_disk_is_enlarged(tmp_path: Path, installed: InstalledChart, start: Start) -> None:
    """At 100 MiB the tests need more, at 200 MiB they do not; who asked for enough is not tried again."""
    needs = {TWO: eats_disk(140, memory_mb=100), THREE: "true"}
    data = dataset(tmp_path, needs)
    words = ["--run-id", "r", "--agent", "gold", *ids(*needs)]
    runner = start(
        *("run", "--store", str(tmp_path), *words, "--dataset", data, "--backend", "kubernetes"),
        *("--memory-mb", "100", "--disk-mb", "100", "-j", "3"),
    )
    undisturbed_store = str(tmp_path / "calm")
    assert swe_argo("run", "--store", undisturbed_store, *words).returncode == 0
    output, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 0, output
    store = str(tmp_path)
    assert failed(store) == {("grade", TWO, FailureClass.OUT_OF_DISK): 1}, [
        failure.reason for failure in failures(open_store(store), "r")
    ]
    assert all(failure.exit_code == 76 for failure in failures(open_store(store), "r"))
    assert verdicts(store, "r") == verdicts(undisturbed_store, "r")
    assert official(store, "r", "gold") == official(undisturbed_store, "r", "gold")
    assert leftovers(installed) == []
