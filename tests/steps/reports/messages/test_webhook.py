from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from swe_argo.steps.reports.messages import webhook as sending
from swe_argo.steps.reports.messages.webhook import TRIES, WebhookError, post
from tests.webhook import Answer, webhook
from tests.workflows.command import wait_for

OK: Answer = (200, {})


def at_once(_tries: int) -> float:
    return 0.0


def test_what_is_sent_arrives_as_it_is() -> None:
    with webhook([OK]) as there:
        post(there.url, {"text": "ä <b> \ud800"})
    assert there.bodies == [{"text": "ä <b> \ud800"}]
    assert there.others == []


def test_a_server_that_fails_and_throttles_is_told_at_last_and_its_wait_is_kept() -> None:
    with webhook([(500, {}), (429, {"Retry-After": "1"}), OK]) as there:
        post(there.url, {"text": "a"}, at_once)
    assert len(there.bodies) == 3
    assert there.times[2] - there.times[1] >= 1.0


def test_a_wait_until_a_date_is_kept_too() -> None:
    until = datetime.now(UTC) + timedelta(seconds=2)
    with webhook([(503, {"Retry-After": format_datetime(until, usegmt=True)}), OK]) as there:
        post(there.url, {"text": "a"}, at_once)
    assert datetime.now(UTC) >= until.replace(microsecond=0)


@pytest.mark.parametrize("said", ["soon", "-1", "1e9999"])
def test_a_wait_that_is_no_wait_is_left_alone(said: str) -> None:
    with webhook([(429, {"Retry-After": said}), OK]) as there:
        post(there.url, {"text": "a"}, at_once)
    assert len(there.bodies) == 2


def test_the_pauses_grow_where_nobody_says_how_long() -> None:
    asked: list[int] = []

    def pause(tries: int) -> float:
        asked.append(tries)
        return 0.0

    with webhook([(502, {})]) as there, pytest.raises(WebhookError, match="it answered 502"):
        post(there.url, {"text": "a"}, pause)
    assert len(there.bodies) == TRIES
    assert asked[: TRIES - 1] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, {}), "it answered 404"),
        ((403, {}), "it answered 403"),
        ((302, {"Location": "/elsewhere"}), "it answered 302"),
        ((429, {"Retry-After": "3600"}), "it answered 429 and asks to wait 3600 s"),
    ],
)
def test_what_will_not_change_is_not_tried_again(answer: Answer, reason: str) -> None:
    with webhook([answer]) as there, pytest.raises(WebhookError) as error:
        post(there.url, {"text": "a"}, at_once)
    assert str(error.value) == reason
    assert len(there.bodies) == 1
    assert there.others == []


def test_who_does_not_answer_in_time_is_asked_again_and_then_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TIMEOUT_S", 0.1)
    with webhook([OK], delay_s=0.4) as there:
        with pytest.raises(WebhookError, match="did not answer in"):
            post(there.url, {"text": "a"}, at_once)
        wait_for(lambda: len(there.bodies) == TRIES)


def test_nobody_there_is_told_without_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(WebhookError) as error:
        post(f"http://127.0.0.1:{port}/services/a-secret", {"text": "a"}, at_once)
    assert str(error.value) == "no connection (Connection refused)"


@pytest.mark.parametrize(
    "url", ["a-secret", "ftp://a-secret/x", "http://[a-secret", "http://host:a-secret/x", "http://h/a secret"]
)
def test_an_address_that_is_none_is_refused_at_once_and_not_repeated(url: str) -> None:
    with pytest.raises(WebhookError) as error:
        post(url, {"text": "a"}, at_once)
    assert "address" in str(error.value)
    assert "secret" not in str(error.value)
    assert not error.value.again
