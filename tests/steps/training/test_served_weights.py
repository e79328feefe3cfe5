"""Who asks for certain weights waits for the proxy that is to serve them."""

from __future__ import annotations

import pytest

from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.training.served_weights import await_weights
from tests.http_server import Handler, serve


def test_await_weights_waits_for_version() -> None:
    to_tell = ["base", None, "000001"]

    class Proxy(Handler):
        def respond(self) -> None:
            assert self.path == "/health"
            weights = to_tell.pop(0)
            self.answer(200, {"weights": weights}) if weights else self.answer(503)

    with serve(Proxy) as url:
        await_weights(f"{url}/v1", "one", "000001")
    assert to_tell == []


def test_other_weights_are_named() -> None:
    class Proxy(Handler):
        def respond(self) -> None:
            self.answer(200, {"weights": "000007"})

    with serve(Proxy) as url, pytest.raises(InfraError, match="does not serve weights base; it serves 000007"):
        await_weights(f"{url}/v1", "one", "base", patience_s=0.1)


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("trainings/two/weights.json", "follows trainings/two/weights.json"),
        (None, "follows no training and serves weights 000007"),
    ],
)
def test_other_trainings_proxy_is_refused(pointer: str | None, message: str) -> None:
    class Proxy(Handler):
        def respond(self) -> None:
            self.answer(200, {"weights": "000007", "pointer": pointer})

    with serve(Proxy) as url, pytest.raises(ConfigError, match=f"{message}; the proxy of training 'one'"):
        await_weights(f"{url}/v1", "one", "base")


def test_trainings_proxy_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    to_tell = ["base", "000001"]

    class Proxy(Handler):
        def respond(self) -> None:
            self.answer(200, {"weights": to_tell.pop(0), "pointer": "trainings/one/weights.json"})

    with serve(Proxy) as url:
        await_weights(f"{url}/v1", "one", "000001")
    assert "serves weights 000001; it serves base" in capsys.readouterr().err
