"""Who asks for certain weights waits for the proxy that is to serve them."""

from __future__ import annotations

import pytest

from steps.errors import InfraError
from steps.training.served_weights import await_weights
from tests.http_server import Handler, serve


def test_it_returns_when_the_weights_are_served_and_not_before() -> None:
    said = ["base", None, "000001"]

    class Proxy(Handler):
        def respond(self) -> None:
            assert self.path == "/health"
            weights = said.pop(0)
            self.answer(200, {"weights": weights}) if weights else self.answer(503)

    with serve(Proxy) as url:
        await_weights(f"{url}/v1", "000001")
    assert said == []


def test_a_proxy_of_other_weights_is_told() -> None:
    class Proxy(Handler):
        def respond(self) -> None:
            self.answer(200, {"weights": "000007"})

    with serve(Proxy) as url, pytest.raises(InfraError, match="does not serve weights base; what it serves is 000007"):
        await_weights(f"{url}/v1", "base", patience_s=0.1)
