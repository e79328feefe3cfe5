"""The pods of one namespace: create, read, watch and remove, with retries while the cluster is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from swe_argo.steps.kube.client import Cluster, RetryPolicy
from swe_argo.steps.kube.requests import REQUEST_S, Plain, find_object, items, opened, path, request_object
from swe_argo.steps.sandbox.kubernetes.requests import call, insist, refused


class Pods:
    """A client for all plain requests of a process. Thread-safe."""

    def __init__(self, cluster: Cluster, patience: RetryPolicy) -> None:
        self.namespace = cluster.namespace
        self._client = cluster.client()
        self._patience = patience

    def make(self, manifest: Plain, *, dry_run: bool = False) -> Plain:
        """Create a pod, or try to. A lost answer shows as ApiException (409); raises as ``call``."""
        doing = f"making pod {manifest['metadata']['name']}"
        query = {"dryRun": "All"} if dry_run else {}
        ask = partial(request_object, self._client, "POST", self._path(), manifest, query=query)
        return call(ask, doing, self._patience)

    def find(self, name: str, patience: RetryPolicy | None = None) -> Plain | None:
        """Return the pod of that name, or None. Raises ConfigError, InfraError."""
        return insist(lambda: self.glance(name), f"looking at pod {name}", patience or self._patience)

    def glance(self, name: str) -> Plain | None:
        """Return the pod, or None, by one request without retries. Raises ApiException, HTTPError, OSError."""
        return find_object(self._client, self._path(name))

    def remove(self, name: str, uid: str, patience: RetryPolicy | None = None) -> None:
        """Delete the pod of that name if it is this very one. Idempotent. Raises ConfigError, InfraError."""
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
                raise refused(error, doing) from error

    def changes(self, pod: Plain, seconds: float) -> Iterator[tuple[str, Plain]]:
        """Yield the changes of a pod after this version of it: (ADDED, MODIFIED or DELETED, the new pod).

        Ends after ``seconds``, or sooner with the connection: read the pod and call again. Raises ConfigError without
        rights, InfraError.
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
            watch = partial(opened, self._client, "GET", self._path(), timeout_s=timeout_s, query=query)
            with closing(call(watch, doing, self._patience)) as response:
                yield from _events(response)
        except ApiException as error:
            if error.status in (401, 403):
                raise refused(error, doing) from error
        except (HTTPError, OSError, ValueError):
            return  # the connection was cut, perhaps in the middle of a line

    def events(self, uid: str) -> list[Plain]:
        """Return the events of a pod, also of one that is gone; empty if they cannot be read."""
        with suppress(ApiException, HTTPError, OSError):
            return items(self._client, path("events", self.namespace), fieldSelector=f"involvedObject.uid={uid}")
        return []

    def _path(self, name: str = "") -> str:
        return path("pods", self.namespace, name)


def _events(response: Any) -> Iterator[tuple[str, Plain]]:
    rest = b""
    for piece in response.stream(amt=None, decode_content=False):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                return  # the version is too old, or the server is stopping
            yield event["type"], event["object"]
