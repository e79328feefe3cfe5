"""Answers as JSON."""

from __future__ import annotations

import json

from werkzeug.wrappers import Response


def answer(body: object, status: int = 200) -> Response:
    return Response(json.dumps(body), status=status, mimetype="application/json")


def failure(status: int, message: str) -> Response:
    return answer({"code": status, "message": message}, status)
