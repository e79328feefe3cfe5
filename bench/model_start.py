"""What it costs to start a solve that asks a model: the step, its agent, the openai client, and the first call."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from bench.processes import cpu_s
from tests.model_server import Answer, model_server, play

_PROGRAM = """
import sys
from swe_argo.steps import solve
from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.run_spec import LlmSpec, RunSpec
from swe_argo.steps.agents import loop
from swe_argo.steps.models.client import open_model
spec = RunSpec(agent=AgentSpec(name="r2egym", model="openai/m"), llm=LlmSpec(base_url=sys.argv[1]))
with open_model(spec) as model:
    model.ask([{"role": "user", "content": "x"}])
"""


def measure() -> dict[str, float]:
    """CPU seconds until a model has answered once, all modules compiled before, as where they are installed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder, model_server(play(Answer("x"))) as server:
        command = ["-X", f"pycache_prefix={folder}", "-c", _PROGRAM, server.url]
        subprocess.run([sys.executable, *command], check=True, env=env)
        return {"solve_start_cpu_s": cpu_s(command)}
