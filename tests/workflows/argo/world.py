"""A namespace over HTTP, by the Kubernetes API's paths and by argo-server's, for the real clients of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import kube_api
from tests.kube_api import NAMESPACE, KubeApi, Plain, Request, Response, refusal

BY_SERVER = re.compile(
    rf"/api/v1/(?P<kind>workflows|workflow-templates|cron-workflows)/{NAMESPACE}"
    r"(?:/(?P<name>[\w.-]+))?(?:/(?P<verb>stop|terminate|log))?"
)
LOG = re.compile(rf"/api/v1/namespaces/{NAMESPACE}/pods/(?P<pod>[\w.-]+)/log")
ARGOS = ("workflows", "workflowtemplates", "cronworkflows")
SETTINGS = {
    "bucket": "runs-here",
    "prefix": "team/",
    "s3-endpoint": "",
    "s3-secret": "keys",
    "credentials": "swe-argo-no-secret",
    "step-pod": "{}",
    "control-pod": "{}",
}


@dataclass
class World(KubeApi):
    """``crds``: full, old (before 4.1), minimal, none; ``version``: what argo-server says that it is."""

    crds: str = "full"
    version: str = "v4.1.2"
    logs: dict[str, str] = field(default_factory=dict)
    """Pod -> what its main container printed."""

    def chart(self, **changed: str) -> None:
        """What the chart makes."""
        self.put("configmaps", "swe-argo-settings", data=SETTINGS | changed)
        self.put("configmaps", "swe-argo-limits", data={"units": "50", "shards": "7"})
        self.put("configmaps", "swe-argo-artifacts", data={})
        self.put("secrets", "keys", data={})
        for name in ("swe-argo-evaluate", "swe-argo-shard"):
            self.put("workflowtemplates", name, spec={})

    def workflow(self, name: str, run: str, phase: str, **more: Any) -> Plain:
        """A Workflow of a run; a shard where ``labels`` say so."""
        labels = {"swe-argo/run": run, "swe-argo/kind": "evaluate", "workflows.argoproj.io/phase": phase}
        labels |= more.pop("labels", {})
        status = {"phase": phase, **more.pop("status", {})}
        return self.put("workflows", name, metadata={"labels": labels}, spec=more.pop("spec", {}), status=status)

    def created_workflows(self) -> list[Plain]:
        """Workflows that came to be."""
        return [body for method, path, body in self.requests if method == "POST" and "dryRun" not in path]

    def respond(self, request: Request) -> tuple[int, Plain | str]:  # type: ignore[override]
        """By argo-server where its paths are asked for, else by the API server."""
        if request.path.endswith("/api/v1/version"):
            return 200, {"version": self.version}
        if match := LOG.fullmatch(request.path):
            pod, log = match["pod"], self._log(match["pod"], request.query, "")
            return refusal(404, f'pods "{pod}" not found') if log is None else (200, "".join(log))
        if match := BY_SERVER.fullmatch(request.path):
            is_log = match["verb"] == "log"
            return self._stream_log(request.query) if is_log else self._respond_by_server(match, request)
        kind = match[1] if (match := kube_api.PATH.fullmatch(request.path)) else ""
        if kind in ARGOS and self.crds == "none":
            return refusal(404, "the server could not find the requested resource")
        if request.method == "POST" and "dryRun" in request.query and kind not in self.forbidden:
            return self._try(request.body)
        return super().respond(request)

    def _try(self, body: Plain) -> Response:
        """As the API server answers a strict dry run, by which CRDs it has."""
        strange = {"full": ["spec.sweArgoProbe"], "old": ["spec.sweArgoProbe", "spec.templates[0].pendingTimeout"]}
        if not (unknown_fields := strange.get(self.crds)):
            return 201, body
        fields = ", ".join(f'unknown field "{field}"' for field in unknown_fields)
        return refusal(400, f"Workflow in version v1alpha1 cannot be handled: strict decoding error: {fields}")

    def _log(self, pod: str, query: dict[str, str], prefix: str) -> list[str] | None:
        """The lines that are asked for; None where there is no such pod."""
        assert query[f"{prefix}container"] == "main"
        if pod not in self.logs:
            return None
        return self.logs[pod].splitlines(keepends=True)[-int(query[f"{prefix}tailLines"]) :]

    def _stream_log(self, query: dict[str, str]) -> tuple[int, str]:
        events = [
            {"result": {"content": line.rstrip("\n"), "podName": query["podName"]}}
            for line in self._log(query["podName"], query, "logOptions.") or []
        ]
        return 200, "".join(json.dumps(event) + "\n" for event in events)

    def _respond_by_server(self, match: re.Match[str], request: Request) -> Response:
        kind, name = match["kind"].replace("-", ""), match["name"] or ""
        if request.method == "POST":
            return self.create(kind, request.body["workflow"])
        if not name:
            chosen = self.choose(kind, {"labelSelector": request.query.get("listOptions.labelSelector", "")})
            return 200, {
                "metadata": {},
                "items": [{key: item.get(key) for key in ("metadata", "status")} for item in chosen],
            }
        if (kind, name) not in self.objects:
            return refusal(404, f"{name} not found")
        if request.method == "DELETE":
            self.objects.pop((kind, name))
            return 200, {}
        if match["verb"]:
            self.patch(kind, name, {"spec": {"shutdown": match["verb"].title()}})
            return 200, {"metadata": {"name": name}, "spec": {}}
        if request.method == "PUT":
            self.objects[kind, name] = request.body["cronWorkflow"]
        return 200, self.objects[kind, name]


@contextmanager
def serving() -> Iterator[World]:
    """The world on a port of its own; gone at the end."""
    with kube_api.serving(World()) as world:
        yield world


def environment(world: World, folder: Path, way: str) -> dict[str, str]:
    """What names the world to a process: a kubeconfig, or an argo-server."""
    if way == "kubernetes":
        return {"KUBECONFIG": str(world.kubeconfig(folder))}
    address = world.url.removeprefix("http://")
    return {"ARGO_SERVER": address, "ARGO_SECURE": "false", "ARGO_TOKEN": "Bearer t", "ARGO_NAMESPACE": NAMESPACE}
