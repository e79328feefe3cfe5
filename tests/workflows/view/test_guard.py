"""Whom the viewer lets in, and what it lets a page do."""

from __future__ import annotations

import pytest

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import Store
from swe_argo.workflows.view.server import ViewOptions, serve
from tests.workflows.view.server import Address, viewing


def test_it_only_reads(viewer: Address) -> None:
    assert {viewer.get("/", method).status for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")} == {405}


def test_no_other_name_leads_to_this_machine(viewer: Address) -> None:
    assert viewer.get("/", Host="evil.example:80").status == 421
    assert viewer.get("/", Host="localhost:7676").status == 200
    assert viewer.get("/", Host="[::1]:7676").status == 200


def test_elsewhere_it_wants_a_token(store: Store) -> None:
    with pytest.raises(ConfigError, match="SWE_ARGO_VIEW_TOKEN"):
        serve(store, ViewOptions(host="0.0.0.0"), print)


def test_a_token_that_no_cookie_carries_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="SWE_ARGO_VIEW_TOKEN: it is not ASCII"):
        serve(store, ViewOptions(port=0, token="s\u00e9cret"), print)


def test_a_token_opens_it_once_and_is_kept_by_a_cookie(store: Store) -> None:
    with viewing(store, "s3cret", loopback=False) as address:
        assert address.get("/health", Host="view.example").status == 200
        assert [address.get(path, Host="view.example").status for path in ("/", "/?token=wrong")] == [401, 401]
        assert address.get("/", Authorization="Bearer s3cret").status == 200
        opened = address.get("/runs/other?q=x&token=s3cret")
        assert (opened.status, opened.headers["location"]) == (303, "/runs/other?q=x")
        several = address.get("/compare?run=a&token=s3cret&run=b").headers["location"]
        assert several == "/compare?run=a&run=b"
        assert address.get("//evil.example/?token=s3cret").headers["location"] == "/evil.example/"
        cookie = opened.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert address.get("/", Cookie=cookie.partition(";")[0]).status == 200
        assert "s3cret" not in address.get("/", Authorization="Bearer s3cret").text


def test_pages_load_nothing_of_others(viewer: Address) -> None:
    for path in ("/", "/runs/other", "/runs/nope", "/static/view.js"):
        policy = viewer.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
    assert "sandbox" in viewer.get("/runs/other/files/report/report.html").headers["content-security-policy"]
