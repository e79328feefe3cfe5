"""A file, a PDF most often, as a part of a chat completion's message: endpoints that read none refuse it in words."""

from __future__ import annotations

from swe_argo.steps.models.protocols.wire import Body


def file_part(name: str, data_url: str) -> Body:
    """``data_url``: all of it, as ``data:application/pdf;base64,...``."""
    return {"type": "file", "file": {"filename": name, "file_data": data_url}}
