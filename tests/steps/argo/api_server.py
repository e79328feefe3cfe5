"""An API server with Workflows and pods in it that plays Argo's controller too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests import kube_api
from tests.kube_api import KubeApi, Plain


@dataclass
class Api(KubeApi):
    """``controller``: whether Workflows that are told to stop do, and their pods with them."""

    controller: bool = True

    def add(self, *items: Plain) -> None:
        """Workflows and pods as they are."""
        for item in items:
            kind, name = "workflows" if item.get("kind") == "Workflow" else "pods", item["metadata"]["name"]
            item["metadata"].setdefault("uid", f"uid-{name}")
            self.objects[kind, name] = item

    def patch(self, kind: str, name: str, body: Plain) -> None:
        """The controller's part: the Workflow ends, and with it the pods of its steps. Stop is nothing to who waits."""
        workflow = self.objects[kind, name]
        waits = (workflow.get("status") or {}).get("phase", "Pending") == "Pending"
        super().patch(kind, name, body)
        how = body.get("spec", {}).get("shutdown")
        if not how or not self.controller or (waits and how != "Terminate"):
            return
        labels = {"workflows.argoproj.io/completed": "true", "workflows.argoproj.io/phase": "Failed"}
        workflow["metadata"]["labels"] |= labels
        workflow.setdefault("status", {}).update(phase="Failed", message=f"Stopped with strategy '{how}'")
        for (of, _), pod in self.objects.items():
            if of == "pods" and pod["metadata"]["labels"].get("workflows.argoproj.io/workflow") == name:
                pod["status"]["phase"] = "Failed"


@contextmanager
def serving(**behaviour: Any) -> Iterator[Api]:
    """The server on a port of its own; gone at the end."""
    with kube_api.serving(Api(**behaviour)) as api:
        yield api
