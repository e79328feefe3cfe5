"""File parts (mostly PDF) of chat completion messages; endpoints without file support refuse them clearly."""

from __future__ import annotations

from swe_argo.steps.models.protocols.wire import Body


def file_part(name: str, data_url: str) -> Body:
    """Return a file part. ``data_url``: the whole file, as ``data:application/pdf;base64,...``."""
    return {"type": "file", "file": {"filename": name, "file_data": data_url}}
