"""Engine for an argo-server, by Hera's service, for users without rights to the Kubernetes API.

Hera's models are used only to send. Responses stay plain objects: a model of a large status takes seconds to build, and
an object sent back from a model has lost every field that Hera does not know.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from hera.exceptions import AlreadyExists, HeraException, NotFound, exception_from_server_response
from hera.workflows import WorkflowsService
from hera.workflows import models as m
from requests import RequestException, Response

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.contracts.workflow_marks import PHASE
from swe_argo.steps.errors import ConfigError, InfraError, one_line
from swe_argo.steps.settings import settings
from swe_argo.workflows.argo.engine import LOG_LINES, STEP_CONTAINER, UNSEEN, Invisible, Plain, WorkflowHeader

T = TypeVar("T")
REQUEST_S = (5.0, 30.0)
KINDS = {"workflowtemplates": "workflow-templates", "cronworkflows": "cron-workflows", "workflows": "workflows"}
"""Plural -> URL path; argo-server shows no other kinds of a namespace."""
BODYLESS = "items.metadata,items.status.phase"
MINIMUM = (4, 1)


class ArgoServerEngine:
    """An Engine that uses argo-server."""

    def __init__(self, service: WorkflowsService, namespace: str, address: str) -> None:
        self.namespace = namespace
        self.where = f"namespace {namespace} of argo-server {address}"
        self._service = service

    @classmethod
    def of(cls, spec: KubernetesSpec) -> ArgoServerEngine:
        """Return the engine for the server of the environment variables of the ``argo`` command. Raises ConfigError."""
        here = settings()
        namespace = spec.namespace or here.argo_namespace
        if not namespace:
            raise ConfigError("argo-server wants a namespace: --namespace or ARGO_NAMESPACE", field="--namespace")
        address = (here.argo_server or "").rstrip("/")
        scheme = "https://" if here.argo_secure else "http://"
        base = address if "://" in address else scheme + address
        # The path must end in a slash: Hera joins its own path to it.
        host = f"{base}/{here.argo_base_href.strip('/')}".rstrip("/") + "/"
        if here.argo_skip_verify:
            warnings.filterwarnings("ignore", message="Unverified HTTPS request")
        token = here.argo_token.get_secret_value() if here.argo_token else None
        service = WorkflowsService(host=host, verify_ssl=not here.argo_skip_verify, token=token, namespace=namespace)
        return cls(service, namespace, address)

    def close(self) -> None:
        """Close the HTTP session."""
        self._service.session.close()

    def fitness(self) -> list[str]:
        """Check the version that the server reports."""
        version = str(self._call("asking for its version", lambda: self._get("api/v1/version")).get("version", ""))
        numbers = version.lstrip("v").split(".")
        if len(numbers) < 2 or not all(each.isdigit() for each in numbers[:2]):
            return [f"argo-server says that it is {version or 'of no version'}: Argo must be 4.1 or newer"]
        if tuple(int(each) for each in numbers[:2]) < MINIMUM:
            raise ConfigError(f"Argo Workflows is {version} there: upgrade it to 4.1 or newer")
        return []

    def see(self, kind: str, name: str) -> Plain | Invisible | None:
        """Return the object; only Argo's own kinds can be seen."""
        if kind not in KINDS:
            return UNSEEN
        return self._call(f"reading {kind}", lambda: self._there(f"api/v1/{KINDS[kind]}/{self.namespace}/{name}"))

    def see_all(self, kind: str) -> list[Plain] | Invisible:  # noqa: ARG002 - part of the protocol
        """Return UNSEEN: argo-server lists none of the kinds in question."""
        return UNSEEN

    def glance(self, selector: str) -> list[WorkflowHeader]:
        """List the Workflows with only the fields that are needed."""
        query = {"listOptions.labelSelector": selector, "fields": BODYLESS}
        where = f"api/v1/workflows/{self.namespace}"
        page = self._call("listing workflows", lambda: self._get(where, query))
        headers = [_glance(item) for item in page.get("items") or []]
        return sorted(headers, key=lambda each: (each.created, each.name))

    def workflow(self, name: str) -> Plain | None:
        """Return the whole Workflow; the server unpacks its nodes."""
        where = f"api/v1/workflows/{self.namespace}/{name}"
        return self._call("reading a workflow", lambda: self._there(where))

    def log_end(self, workflow: str, pod: str) -> str:
        """Return the end of the log, which argo-server streams as one JSON object per line."""
        options = {"podName": pod, "logOptions.container": STEP_CONTAINER, "logOptions.tailLines": str(LOG_LINES)}
        where = f"api/v1/workflows/{self.namespace}/{workflow}/log"
        try:
            answer = self._ask("get", where, params=options)
            lines = [json.loads(line) for line in answer.text.splitlines() if line.strip()] if answer.ok else []
            return "\n".join(str(line["result"].get("content", "")) for line in lines)
        except (RequestException, OSError, ValueError, KeyError, TypeError, AttributeError):
            return ""

    def create(self, workflow: Plain) -> None:
        """Create the Workflow by Hera's model, which has every field that is sent here."""
        body = m.WorkflowCreateRequest(workflow=m.Workflow.model_validate(workflow), namespace=self.namespace)
        try:
            self._call("submitting", lambda: self._service.create_workflow(body))
        except ConfigError as error:
            if not isinstance(error.__cause__, AlreadyExists):
                raise

    def stop(self, name: str, *, waits: bool = False) -> None:
        """Stop like ``argo stop`` and ``argo terminate``."""

        def ask() -> object:
            if waits:
                return self._service.terminate_workflow(
                    name, m.WorkflowTerminateRequest(name=name, namespace=self.namespace)
                )
            return self._service.stop_workflow(name, m.WorkflowStopRequest(name=name, namespace=self.namespace))

        try:
            self._call("stopping", ask)
        except ConfigError as error:
            if not isinstance(error.__cause__, NotFound):
                raise

    def remove(self, name: str) -> None:
        """Delete like ``argo delete``."""
        try:
            self._call("removing", lambda: self._request("delete", f"api/v1/workflows/{self.namespace}/{name}"))
        except ConfigError as error:
            if not isinstance(error.__cause__, NotFound):
                raise

    def change_cron(self, name: str, spec: Plain) -> None:
        """Change the CronWorkflow by replacing the whole object: argo-server has no patch."""
        where = f"api/v1/cron-workflows/{self.namespace}/{name}"

        def change() -> None:
            there = self._get(where)
            there["spec"] = there["spec"] | spec
            self._request("put", where, json={"namespace": self.namespace, "name": name, "cronWorkflow": there})

        self._call("changing the nightly run", change)

    def _there(self, where: str) -> Plain | None:
        try:
            return self._get(where)
        except NotFound:
            return None

    def _get(self, where: str, query: dict[str, str] | None = None) -> Plain:
        return self._request("get", where, params=query)

    def _request(self, method: str, where: str, **more: Any) -> Plain:
        answer = self._ask(method, where, **more)
        if not answer.ok:
            raise exception_from_server_response(answer)
        return dict(answer.json())

    def _ask(self, method: str, where: str, **more: Any) -> Response:
        return self._service.session.request(
            method,
            f"{self._service.host}{where}",
            headers={"Authorization": self._service.token},
            verify=self._service.verify_ssl,
            timeout=REQUEST_S,
            **more,
        )

    def _call(self, doing: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except HeraException as error:
            status = getattr(error, "status_code", 0)
            text = f"{doing} in {self.where}: {' '.join(str(error).split())}"
            if status == 401:
                raise ConfigError(f"{self.where} does not know this token: set ARGO_TOKEN (argo auth token)") from error
            if status >= 500 or not status:
                raise InfraError(FailureClass.ENGINE, text) from error
            raise ConfigError(text) from error
        except (RequestException, OSError, ValueError) as error:
            text = f"{doing}: {self.where} does not answer: {one_line(str(error), 200)}"
            raise InfraError(FailureClass.ENGINE, text) from error


def _glance(item: Plain) -> WorkflowHeader:
    metadata, status = item["metadata"], item.get("status") or {}
    labels = metadata.get("labels") or {}
    return WorkflowHeader(
        name=metadata["name"],
        version=metadata.get("resourceVersion", ""),
        phase=status.get("phase") or labels.get(PHASE, ""),
        labels=labels,
        created=metadata.get("creationTimestamp") or "",
    )
