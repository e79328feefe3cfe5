"""A run for certain weights waits until the proxy serves them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.training import checkpoints
from swe_argo.steps.training.checkpoints import await_weights
from tests.http_server import Handler, serve

POINTER = "trainings/one/weights.json"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE_S", 0.01)


@contextmanager
def proxy(*versions: str | None, **fields: object) -> Iterator[str]:
    """Serve /health with these versions in turn, the last one for good; None: 503."""
    remaining = list(versions)

    class Proxy(Handler):
        def respond(self) -> None:
            assert self.path == "/health"
            weights = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            self.answer(200, {"weights": weights, **fields}) if weights else self.answer(503)

    with serve(Proxy) as url:
        yield f"{url}/v1"


@pytest.mark.parametrize("fields", [{}, {"pointer": POINTER}])
def test_await_weights_waits_for_version(fields: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    with proxy("base", None, "000001", **fields) as url:
        await_weights(url, "one", "000001")
    assert "serves weights 000001; it serves base" in capsys.readouterr().err


def test_other_weights_are_named() -> None:
    with proxy("000007") as url, pytest.raises(InfraError, match="does not serve weights base; it serves 000007"):
        await_weights(url, "one", "base", timeout_s=0.1)


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("trainings/two/weights.json", "follows trainings/two/weights.json"),
        (None, "follows no training and serves weights 000007"),
    ],
)
def test_other_trainings_proxy_is_refused(pointer: str | None, message: str) -> None:
    words = f"{message}; the proxy of training 'one'"
    with proxy("000007", pointer=pointer) as url, pytest.raises(ConfigError, match=words):
        await_weights(url, "one", "base")
