"""A namespace with the chart in it, and runs there as the chart's own account makes them: never as an administrator."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import plan, summary

ACCOUNT = "swe-argo-runner"
PATIENCE_S = 900.0
"""The most that a test waits for a state: more than it takes on a machine that does something else as well."""
# The node of a test cluster is small and has no labels of ours; sandboxes here do little.
SMALL = [
    *("--set", "sandbox.resources.requests.cpu=10m"),
    *("--set", "sandbox.resources.requests.memory=16Mi"),
    *("--set-string", "sandbox.resources.requests.ephemeral-storage=16Mi"),
    *("--set", "sandbox.nodeSelector=null"),
]


@dataclass(frozen=True)
class InstalledChart:
    """Where the runs of a test take place. ``kubeconfig`` is of the account swe-argo-runner, its namespace the chart's.

    ``folder`` is for what runs leave on this machine: their temporary folders too.
    """

    cluster: Cluster
    namespace: str
    kubeconfig: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For swe-argo."""
        scratch = self.folder / "tmp"
        scratch.mkdir(exist_ok=True)
        return {"KUBECONFIG": str(self.kubeconfig), "TMPDIR": str(scratch)}

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """As an administrator, in the namespace."""
        return self.cluster.kubectl("-n", self.namespace, *args, input=input)

    def pods(self, selector: str = "swe-argo/role") -> list[dict[str, Any]]:
        """The pods there, sandboxes by default."""
        pod_list: dict[str, Any] = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))
        return list(pod_list["items"])

    def running(self) -> dict[tuple[str, str], str]:
        """The sandboxes whose containers run: (instance, role) -> the pod's name."""
        names = {}
        for pod in self.pods():
            meta = pod["metadata"]
            states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
            if "deletionTimestamp" not in meta and any("running" in state for state in states):
                names[meta["annotations"].get("swe-argo/instance", ""), meta["labels"]["swe-argo/role"]] = meta["name"]
        return names

    def busy(self, instance: str, role: str) -> str:
        """Wait until the container of this instance's sandbox runs; the pod's name."""
        names: list[str] = []

        def runs() -> bool:
            names.extend(name for place, name in self.running().items() if place == (instance, role))
            return bool(names)

        assert settles(runs), f"no sandbox of {instance} runs to {role} it"
        return names[0]

    def remains(self) -> list[str]:
        """What runs may not leave behind: sandboxes, leases, files here."""
        objects = self.kubectl("get", "pods,leases", "-o", "name").split()
        return objects + [str(path) for path in self.folder.glob("tmp/*")]


def settles(true: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether it comes to hold. It is tried four times a second: kubectl is a large program."""
    until = time.monotonic() + seconds
    while not (holds := bool(true())) and time.monotonic() < until:
        time.sleep(0.25)
    return holds


def leftovers(installed: InstalledChart) -> list[str]:
    """What is left when all that is on its way out is gone: the kubelet takes a moment."""
    settles(lambda: not installed.remains())
    return installed.remains()


@contextlib.contextmanager
def prepared(cluster: Cluster, folder: Path) -> Iterator[InstalledChart]:
    """A namespace with the chart, and a kubeconfig of its account. Both are gone at the end."""
    with cluster.namespace("runs") as namespace:
        result = cluster.command("install", namespace, *SMALL)
        assert result.returncode == 0, result.stderr
        try:
            yield InstalledChart(cluster, namespace, account_kubeconfig(cluster, namespace, ACCOUNT, folder), folder)
        finally:
            words = ["helm", "uninstall", "swe-argo", "--namespace", namespace]
            subprocess.run(words, env=cluster.environment, check=True, capture_output=True)


def account_kubeconfig(cluster: Cluster, namespace: str, account: str, folder: Path) -> Path:
    """A kubeconfig with a token of a service account, as a person who may only use that one would have it."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    token = cluster.kubectl("create", "token", account, "-n", namespace, "--duration=2h").strip()
    config["users"] = [{"name": account, "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": account, "namespace": namespace}
    path = folder / f"{namespace}-{account}.conf"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def verdicts(store: str, run: str) -> dict[str, object]:
    """Per unit what was decided, and how, and the bytes of its official report."""
    opened = open_store(store)
    units: dict[str, object] = {}
    for unit in plan(store, run).units:
        name = (run, unit.instance_id, unit.attempt)
        grade = GradeRecord.from_bytes(opened.get(key(GradeRecord, *name)))
        units[f"{unit.instance_id}/{unit.attempt}"] = (
            grade.outcome,
            grade.fail_to_pass,
            grade.pass_to_pass,
            sorted(grade.failing_tests),
            grade.integrity.verdict,
            opened.get(f"runs/{run}/units/{unit.instance_id}/{unit.attempt}/report.json"),
            opened.get(f"runs/{run}/units/{unit.instance_id}/{unit.attempt}/patch.diff"),
        )
    return units


def figures(store: str, run: str) -> dict[str, Any]:
    """The summary of a run without what may differ: times, and what it cost to get there."""
    volatile = {"created_at", "seconds", "failed_tries", "cost", "conditions", "versions", "notices", "doubts"}
    fields = summary(store, run).model_dump(exclude=volatile)
    for name in ("confirmation", "counter_proof"):
        if fields[name]:
            del fields[name]["seconds"]
    return fields
