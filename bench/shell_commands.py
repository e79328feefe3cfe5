"""What an agent's command costs in a local sandbox: by itself, in a shell, and in a shell that may be answered."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from swe_argo.steps.agents.tools.shell import Patience, Shell
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.protocol import SandboxRequest
from tests.steps.agents.machine import image

TIMES = 100
COMMAND = "echo hello"


def measure() -> dict[str, float]:
    """Milliseconds of the median ``exec``, command of a shell, and command of a shell with patience (OpenHands)."""
    with tempfile.TemporaryDirectory() as folder:
        image(Path(folder) / "bench__image" / "testbed")
        backend = LocalBackend(Path(folder), isolated=bubblewrap.probe() is None)
        box = backend.create(SandboxRequest("bench", "bench/image", deadline_s=300, network=False))
        try:
            plain, patient = Shell(box, persistent=True), Shell(box, persistent=True)
            ways: dict[str, Callable[[], object]] = {
                "exec_ms": lambda: box.exec(COMMAND, timeout_s=20),
                "shell_command_ms": lambda: plain.run(COMMAND, timeout_s=20),
                "patient_command_ms": lambda: patient.run(COMMAND, timeout_s=20, patience=Patience(20.0, 10.0)),
            }
            # One after the other in turn: what else this machine does meanwhile is in all of them.
            rounds = [{name: _ms(way) for name, way in ways.items()} for _ in range(TIMES)]
        finally:
            backend.destroy(box)
    medians = {name: sorted(round_times[name] for round_times in rounds)[TIMES // 2] for name in ways}
    return {**medians, "patient_to_shell_command": medians["patient_command_ms"] / medians["shell_command_ms"]}


def _ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000
