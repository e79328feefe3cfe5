"""Tencent's signature TC3-HMAC-SHA256 over a request, checked as its documentation has it."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from datetime import UTC, datetime

from werkzeug.wrappers import Request

SERVICE = "ags"
_AUTHORIZATION = re.compile(
    r"TC3-HMAC-SHA256 Credential=(?P<key_id>[^/]+)/(?P<date>[^/]+)/(?P<service>[^/]+)/tc3_request, "
    r"SignedHeaders=(?P<headers>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_S = 300


def refusal(request: Request, secret_id: str, secret_key: str) -> tuple[str, str] | None:
    """The code and message with which the service refuses a request that is not signed by this key, else None."""
    match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    moment = int(request.headers.get("X-TC-Timestamp", "0"))
    date = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
    if match is None or (match["date"], match["service"]) != (date, SERVICE):
        return "AuthFailure.SignatureFailure", "The Authorization header is malformed."
    if abs(time.time() - moment) > _SKEW_S:
        return "AuthFailure.SignatureExpire", "The signature is expired."
    if match["key_id"] != secret_id:
        return "AuthFailure.SecretIdNotFound", "The SecretId is not found."
    names = match["headers"].split(";")
    is_good = {"content-type", "host"} <= set(names) and hmac.compare_digest(
        _signature(request, names, secret_key, moment, date), match["signature"]
    )
    return None if is_good else ("AuthFailure.SignatureFailure", "The provided credentials could not be validated.")


def _signature(request: Request, names: list[str], secret_key: str, moment: int, date: str) -> str:
    canonical = "\n".join(
        [
            request.method,
            "/",
            request.query_string.decode(),
            *(f"{name}:{request.headers[name].strip().lower()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(request.get_data()).hexdigest(),
        ]
    )
    scope = f"{date}/{SERVICE}/tc3_request"
    text = f"TC3-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"TC3{secret_key}".encode()
    for part in (date, SERVICE, "tc3_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()
