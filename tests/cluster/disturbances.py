"""Runs that take long enough to be disturbed, and what disturbs them."""

from __future__ import annotations

import json
from pathlib import Path

from swe_argo.steps.datasets.load import load
from swe_argo.steps.families.family import Row
from tests.cluster.installed_chart import InstalledChart

_HEAD = "set -uxo pipefail\n"


def rows(before: dict[str, str]) -> list[Row]:
    """Rows of mini, by id; before its tests each does what ``before`` says, in shell."""
    changed = []
    for row in load("mini", "test").rows:
        if (act := before.get(row["instance_id"])) is not None:
            assert _HEAD in row["eval_script"]
            changed.append({**row, "eval_script": row["eval_script"].replace(_HEAD, f"{_HEAD}{act}\n", 1)})
    assert len(changed) == len(before)
    return changed


def dataset(folder: Path, before: dict[str, str]) -> str:
    """A file of such rows, as the name of a dataset."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows(before)))
    return str(path)


def recordings(folder: Path, instances: list[str], act: str = "true") -> str:
    """Trajectories that do ``act`` and then apply the reference patch; the folder they are in."""
    patches = {row["instance_id"]: row["patch"] for row in load("mini", "test").rows}
    for instance in instances:
        commands = [act, f"git apply - <<'END_OF_PATCH'\n{patches[instance]}END_OF_PATCH"]
        messages = [
            {"role": "assistant", "content": "I know.", "extra": {"actions": [{"command": command}]}}
            for command in commands
        ]
        trajectory = {
            "info": {"config": {"model": {"model_name": "lab/model"}}, "exit_status": "Submitted", "submission": ""},
            "messages": [{"role": "user", "content": "fix it"}, *messages],
            "trajectory_format": "mini-swe-agent-1.1",
            "instance_id": instance,
        }
        (folder / instance).mkdir(parents=True)
        (folder / instance / f"{instance}.traj.json").write_text(json.dumps(trajectory))
    return str(folder)


def eats_memory(mib: int) -> str:
    """A process that holds so much at once."""
    return f"python -c 'held = bytearray(b\"x\") * ({mib} << 20)'"


def eats_disk(mib: int, memory_mb: int) -> str:
    """A file of so much outside the repository, for the kubelet to see; then it is gone.

    Who has just so much memory, and so this is the first try, keeps it for minutes: a busy kubelet looks late.
    """
    limit = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null"
    seconds = f'$([ "$({limit})" = {memory_mb << 20} ] && echo 240 || echo 40)'
    return f"head -c {mib}M /dev/zero >/var/tmp/ballast; sleep {seconds}; rm -f /var/tmp/ballast"


def delete(installed: InstalledChart, pod: str) -> None:
    """As an administrator in a hurry does."""
    installed.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def evict(installed: InstalledChart, pod: str) -> None:
    """As a node that is drained does."""
    installed.cluster.evict(installed.namespace, pod)


def crash(installed: InstalledChart, pod: str) -> None:
    """As a container's crash is."""
    installed.cluster.crash(installed.namespace, pod)
