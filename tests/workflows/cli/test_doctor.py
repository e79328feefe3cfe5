from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.http_server import Handler, serve
from tests.workflows.command import swe_argo

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_doctor_prints_line_per_extra() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    result = swe_argo("doctor", env={"KUBECONFIG": "/nonexistent", "HF_ENDPOINT": "http://127.0.0.1:9"})
    names = {line.split("  ")[0].removeprefix("backend ") for line in result.stdout.splitlines()}
    assert set(extras) - {"run", "all", "dev", "verifiers"} <= names, result.stdout  # that one is what loads us
    assert result.returncode == 0, result.stdout


class _Hub(Handler):
    """A hub that answers, if only that it has no such page."""

    def respond(self) -> None:
        self.answer(404)


def test_doctor_queries_hub() -> None:
    with serve(_Hub) as address:
        reachable = swe_argo("doctor", env={"HF_ENDPOINT": address, "COLUMNS": "200"})
    away = swe_argo("doctor", env={"HF_ENDPOINT": "http://127.0.0.1:9", "COLUMNS": "200"})
    assert re.search(r"^hub +yes ", reachable.stdout, re.MULTILINE), reachable.stdout
    assert re.search(r"^hub +no +http://127\.0\.0\.1:9 does not answer", away.stdout, re.MULTILINE), away.stdout
