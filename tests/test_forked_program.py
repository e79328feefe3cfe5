"""Forked programs behave as started ones: the same state, the same ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked_program import EARLY
from tests.paths import ROOT

PROGRAM = "tests.probe_program"
READ = """
import os
from importlib import import_module
from tests.forked_program import IMPORTED

class Watched(dict):
    def __getitem__(self, name):
        seen.add(name.decode())
        return super().__getitem__(name)

    def __contains__(self, name):
        seen.add(name.decode())
        return super().__contains__(name)

    def __iter__(self):
        seen.add("all of them")
        return super().__iter__()

seen = set()
os.environ._data = Watched(os.environ._data)
for name in IMPORTED:
    import_module(name)
print(*sorted(seen - {"HOME"}))  # which sysconfig reads for where packages of a user are
"""


RUNNER = """
import os, sys
from swe_argo.workflows.local.programs import fork_root, get_forker, make_request

if sys.argv[1] == "the command line":
    fork_root()
for words in sys.argv[2:]:
    program = get_forker().start(make_request("tests.probe_program", words.split("|"), os.environ), 0, 1, 2)
    print(f"\\ncode {program.wait()}\\n", end="", flush=True)
"""
"""Runs programs as a runner runs its steps: forked from the command line, or from a new interpreter."""


def run_by_runner(root: str, *programs: str, cwd: Path, env: dict[str, str]) -> list[tuple[int, str]]:
    """Return exit code and output of each program; ``|`` separates its words."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120}
    command = [sys.executable, "-c", RUNNER, root, *programs]
    output = subprocess.run(command, check=True, cwd=cwd, env=env, **options).stdout
    return [(int(code), text) for text, code in re.findall(r"(.*?)\ncode (-?\d+)\n", output, re.DOTALL)]


def started(*words: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start the program, to compare with."""
    command = [sys.executable, "-m", PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=120)


ENDS = ["return", "word", "code", "raise", "SIGTERM", "SIGKILL", "thread"]


@pytest.mark.parametrize("root", ["the command line", "an interpreter"])
def test_forked_step_equals_started_one(tmp_path: Path, root: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SHELL"}
    env |= {"PYTHONUTF8": "1", "PYTHONPATH": str(ROOT)}
    for cwd in (tmp_path, ROOT):
        (state, *ends) = run_by_runner(root, "tell|a b", *(ENDS if cwd == tmp_path else []), cwd=cwd, env=env)
        assert state[0] == 0
        assert json.loads(state[1]) == json.loads(started("tell", "a b", cwd=cwd, env=env).stdout)
        for end, result in zip(ENDS, ends, strict=False):
            real = started(end, cwd=cwd, env=env)
            assert result == (real.returncode, real.stdout), end


def test_early_variables_are_complete(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True, timeout=120)
    assert [name for name in result.stdout.split() if not name.startswith(EARLY)] == []
