"""swe-argo for programs: read runs, compare them, start them (docs/python.md).

The code is in ``workflows.api`` and ``steps``; here are the names that a program uses.
"""

from steps.errors import ConfigError, InfraError, StepError
from workflows.api.handle import RunEvent, RunHandle, RunResult, start
from workflows.api.instances import read_instances
from workflows.api.request import RunRequest, make_request
from workflows.api.run import Run, RunProgress
from workflows.api.store import RunStore, open_runs
from workflows.api.unit import RunUnit

__all__ = [
    "ConfigError",
    "InfraError",
    "Run",
    "RunEvent",
    "RunHandle",
    "RunProgress",
    "RunRequest",
    "RunResult",
    "RunStore",
    "RunUnit",
    "StepError",
    "make_request",
    "open_runs",
    "read_instances",
    "start",
]
