"""Create, read, watch and remove the pods of one namespace, with retries while the cluster does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from swe_argo.steps.kube.client import Cluster, RetryPolicy
from swe_argo.steps.kube.requests import REQUEST_S, Plain, find_object, list_objects, path, request_object, send_request
from swe_argo.steps.sandbox.kubernetes.requests import call, call_or_fail, refusal_failure


class Pods:
    """A client for the requests of a process about pods, except execs. Thread-safe."""

    def __init__(self, cluster: Cluster, patience: RetryPolicy) -> None:
        self.namespace = cluster.namespace
        self._client = cluster.client()
        self._patience = patience

    def make(self, manifest: Plain, *, dry_run: bool = False) -> Plain:
        """Create a pod, or test its creation; return it as stored.

        Raises ApiException for a refusal (409: the name is in use, perhaps by this pod after a lost answer), InfraError
        after the last retry.
        """
        doing = f"creating pod {manifest['metadata']['name']}"
        query = {"dryRun": "All"} if dry_run else {}
        create = partial(request_object, self._client, "POST", self._path(), manifest, query=query)
        return call(create, doing, self._patience)

    def find(self, name: str, patience: RetryPolicy | None = None) -> Plain | None:
        """Return the pod of that name, or None. Raises ConfigError if refused, InfraError after the last retry."""
        return call_or_fail(lambda: self.find_once(name), f"reading pod {name}", patience or self._patience)

    def find_once(self, name: str) -> Plain | None:
        """Return the pod, or None, by one request without retries. Raises ApiException, HTTPError, OSError."""
        return find_object(self._client, self._path(name))

    def remove(self, name: str, uid: str, patience: RetryPolicy | None = None) -> None:
        """Delete the pod with this name and uid. Idempotent. Raises as ``find``."""
        doing = f"removing pod {name}"
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            call(
                lambda: request_object(self._client, "DELETE", self._path(name), options),
                doing,
                patience or self._patience,
            )
        except ApiException as error:
            if error.status not in (404, 409):  # 409: another pod has the name by now
                raise refusal_failure(error, doing) from error

    def changes(self, pod: Plain, seconds: float) -> Iterator[tuple[str, Plain]]:
        """Yield the changes after this version of a pod: (ADDED, MODIFIED or DELETED, the new pod).

        Ends after ``seconds``, or when the connection ends; then read the pod and call again. Raises ConfigError
        without the right, InfraError if the API server does not answer.
        """
        seconds = max(1, round(seconds))
        doing = f"watching pod {pod['metadata']['name']}"
        try:
            query = {
                "fieldSelector": f"metadata.name={pod['metadata']['name']}",
                "resourceVersion": pod["metadata"]["resourceVersion"],
                "watch": "true",
                "timeoutSeconds": seconds,
            }
            timeout_s = (REQUEST_S[0], seconds + REQUEST_S[1])
            watch = partial(send_request, self._client, "GET", self._path(), timeout_s=timeout_s, query=query)
            with closing(call(watch, doing, self._patience)) as response:
                yield from _events(response)
        except ApiException as error:
            if error.status in (401, 403):
                raise refusal_failure(error, doing) from error
        except (HTTPError, OSError, ValueError):
            return  # the connection ended, perhaps inside a line

    def events(self, uid: str) -> list[Plain]:
        """Return the events of a pod, which may be deleted; empty if they cannot be read."""
        with suppress(ApiException, HTTPError, OSError):
            return list_objects(self._client, path("events", self.namespace), fieldSelector=f"involvedObject.uid={uid}")
        return []

    def _path(self, name: str = "") -> str:
        return path("pods", self.namespace, name)


def _events(response: Any) -> Iterator[tuple[str, Plain]]:
    """Yield type and object of each event of a watch, one JSON line each. Raises urllib3's errors, ValueError."""
    incomplete = b""
    for piece in response.stream(amt=None, decode_content=False):
        *lines, incomplete = (incomplete + piece).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                return  # the version is too old, or the server is stopping
            yield event["type"], event["object"]
