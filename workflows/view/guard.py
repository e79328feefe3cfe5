"""Access control of all requests: read-only methods, host name, token, and security headers."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "swe_argo_view"
OWN_NAMES = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware that controls access.

    ``loopback``: accept only local host names, because any other is DNS rebinding. ``token``: required as
    ``Authorization: Bearer``, or once as ``?token=``, which sets a cookie.
    """

    def __init__(self, app: ASGIApp, token: str | None = None, *, loopback: bool = True) -> None:
        self._app, self._token, self._loopback = app, token, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response to a request that is refused or that has its token in the URL; None to continue."""
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the viewer is read-only: use GET or HEAD\n", 405, {"Allow": "GET, HEAD"})
        if self._loopback and _host_name(headers.get("host", "")) not in OWN_NAMES:
            return PlainTextResponse("this viewer accepts local requests only: open it as localhost\n", 421)
        if self._token is None or scope["path"] == "/health":
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        query_token = next((value for name, value in query if name == "token" and self._is_token(value)), None)
        if query_token is not None:
            remaining = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/\\")  # never the URL of another server
            answer = RedirectResponse(path + (f"?{remaining}" if remaining else ""), 303)
            answer.set_cookie(COOKIE, query_token, httponly=True, samesite="lax", secure=scope["scheme"] == "https")
            return answer
        token = headers.get("authorization", "").removeprefix("Bearer ").strip() or _cookie(headers.get("cookie", ""))
        if self._is_token(token):
            return None
        return PlainTextResponse("this viewer requires a token: open it once with ?token=...\n", 401)

    def _is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())


def _host_name(host: str) -> str:
    """Return the name of a Host header without its port; IPv6 addresses are in brackets."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def _cookie(header: str) -> str:
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _with_headers(send: Send) -> Send:
    """Return ``send`` with the security headers added to each response."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
