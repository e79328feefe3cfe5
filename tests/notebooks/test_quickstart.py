"""The quickstart notebook runs without network and keys, and is committed without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import swe_argo
from tests.paths import ROOT

pytestmark = pytest.mark.long
NOTEBOOK = ROOT / "templates/notebooks/quickstart.ipynb"
KEYS = ("OPENAI", "LLM_", "E2B_", "TENCENT", "AGS_", "EVAL_", "RUNTIME", "SWE_ARGO_STORE")


def cells(notebook: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook."""
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


PRINTED = (
    "mini__slugkit-2  |  mini/slugkit  |  max_length drops a word",
    "quickstart: 3 units to do",
    "resolved 1 of 3 (1 unconfirmed) - the report: results/runs/quickstart/report/report.html",
    "empty_patch",
    "$ grep -n 'len(separator)' slugkit/slug.py",
    "+        length += len(word) + (len(separator) if kept else 0)",
    "gained: ['mini__slotbook-2', 'mini__slugkit-1']",
    "image/png",
)


def test_notebook_has_no_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(NOTEBOOK))


@pytest.mark.timeout(600)
def test_notebook_prints_expected_text(tmp_path: Path) -> None:
    text = execute(tmp_path)
    assert [part for part in PRINTED if part not in text] == []


def execute(folder: Path) -> str:
    """Execute the notebook in an empty folder and return the text of its outputs, with the types of its images."""
    executed_notebook = folder / "done.ipynb"
    program = "import nbformat, sys; from nbclient import NotebookClient; " + (
        "book = nbformat.read(sys.argv[1], 4); NotebookClient(book, kernel_name='python3', timeout=280).execute(); "
        "nbformat.write(book, sys.argv[2])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(KEYS)}
    away = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_PROXY": ""}
    home = {
        "HOME": str(folder),
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    subprocess.run(
        [sys.executable, "-c", program, str(NOTEBOOK), str(executed_notebook)],
        cwd=folder,
        env={**environment, **away, **home},
        check=True,
    )
    outputs = [output for cell in cells(executed_notebook) for output in cell["outputs"]]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    images = ["image/png" for output in outputs if "image/png" in output.get("data", {})]
    return "\n".join("".join(text) for text in [*texts, *images])


def test_notebook_requests_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(KEYS)]:
        monkeypatch.delenv(name)
    (source,) = [text for cell in cells(NOTEBOOK) if "RUN = {" in (text := "".join(cell["source"]))]
    names: dict[str, Any] = {}
    exec(source, names)
    for backend in ("E2B", "AGS"):
        spec = swe_argo.make_request(names[backend]).spec
        assert (spec.sandbox.backend, spec.agent.timeout_s) == (backend.lower(), 1800.0)
