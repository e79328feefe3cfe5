"""A Kubernetes API server with nothing in it: discovery, which is what Helm asks before it renders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.http_server import Handler, serve
from tests.kube_api import write_kubeconfig

VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}


def _answers(groups: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {"/version": VERSION, "/api": {"kind": "APIVersions", "versions": ["v1"]}}
    listed = []
    for group in ("v1", *groups):
        resources = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}
        answers["/api/v1" if group == "v1" else f"/apis/{group}"] = resources
    for group in groups:
        name, version = group.split("/")
        version_info = {"groupVersion": group, "version": version}
        listed.append({"name": name, "versions": [version_info], "preferredVersion": version_info})
    return answers | {"/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}}


@contextlib.contextmanager
def api_server(folder: Path, *groups: str) -> Iterator[Path]:
    """A kubeconfig of a server that serves these API groups (``apps/v1``) and v1, and of neither any object."""
    answers = _answers(groups)

    class Discovery(Handler):
        def respond(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            self.answer(200 if answer else 404, answer or missing)

    with serve(Discovery) as address:
        yield write_kubeconfig(folder, address, "one")
