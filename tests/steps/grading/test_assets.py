from __future__ import annotations

from collections.abc import Iterator

import pytest

from swe_argo.steps.errors import InfraError
from swe_argo.steps.grading import official
from swe_argo.steps.grading.procedure import run_tests
from tests.http_server import Handler, serve
from tests.steps.grading.conftest import Lab, eval_script

PICTURE = bytes(range(256))


class Files(Handler):
    def respond(self) -> None:
        self.answer(200, PICTURE) if self.path == "/expected.png" else self.answer(404)


@pytest.fixture
def server() -> Iterator[str]:
    with serve(Files) as address:
        yield address


def run(lab: Lab, url: str) -> tuple[str, bytes]:
    asset = {"path": "tests/cases/expected.png", "url": url}
    assets = {"problem_statement": [], "patch": [], "test_patch": [asset]}
    command = "sha256sum tests/cases/expected.png; echo 'PASSED tests/test_calc.py::test_adds'"
    row = lab.row(image_assets=assets, eval_script=eval_script(lab.base, command))
    result = run_tests(lab.box(), official.make_test_spec(row), None, timeout_s=30, folder="f")
    assert result.log is not None
    return result.script.decode(), result.log


def test_assets_are_placed_before_tests(lab: Lab, server: str) -> None:
    import hashlib

    script, log = run(lab, f"{server}/expected.png")
    lines = script.split("\n")
    command = "mkdir -p $(dirname tests/cases/expected.png) && cp /image_assets/tests__cases__expected.png "
    place = lines.index(f"{command}tests/cases/expected.png")
    assert lines[place + 1] == ": '>>>>> Start Test Output'"
    assert place > lines.index("EOF_0123456789ab")
    assert hashlib.sha256(PICTURE).hexdigest().encode() in log


@pytest.mark.parametrize("path", ["/gone.png", ""])
def test_missing_asset_is_raised(lab: Lab, server: str, path: str) -> None:
    with pytest.raises(InfraError, match=r"expected\.png|gone\.png"):
        run(lab, server + path if path else "")
