"""What the service's parameters and listings are made of."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Refused(Exception):  # noqa: N818
    """An answer with Error{Code, Message}."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code)
        self.code = code
        self.message = message


def require(holds: bool, code: str, message: str) -> None:
    if not holds:
        raise Refused(code, message)


def seconds_of(text: str) -> float:
    """Of a time as 5m, 300s, 1h."""
    match = re.fullmatch(r"([0-9]+)([smh])", text)
    if match is None:
        raise Refused("InvalidParameterValue.Timeout", f"Timeout {text} is malformed.")
    return float(match[1]) * _UNITS[match[2]]


def page_of(items: list[dict[str, Any]], body: dict[str, Any], key: str) -> dict[str, Any]:
    offset, limit = body.get("Offset", 0), body.get("Limit", 20)
    require(1 <= limit <= 100, "InvalidParameter.Limit", "Limit is out of range.")
    return {key: items[offset : offset + limit], "TotalCount": len(items)}
