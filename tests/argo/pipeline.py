"""The chart's pipeline in a namespace, and runs of it as the Argo UI would submit them: plain API objects."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.argo.image import REPOSITORY, TAG
from tests.cluster.installed_chart import PATIENCE_S, SMALL, settles
from tests.cluster.real_cluster import Cluster

S3 = ("10.244.0.1", 9000)
METRICS = f"http://{S3[0]}:9090/metrics"
ENDED = ("Succeeded", "Failed", "Error")
FOUND = "workflows.argoproj.io/workflow"
# The node of a test cluster is small. Pods of a run do little, and wait for each other mostly.
TINY = [
    *SMALL,
    *("--set", "steps.resources.requests.cpu=10m", "--set", "steps.resources.requests.memory=32Mi"),
    *("--set", "control.resources.requests.cpu=10m", "--set", "control.resources.requests.memory=32Mi"),
    *("--set", "limits.units=4"),
]

Node = dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """The chart in a namespace of its own, with a bucket of its own."""

    cluster: Cluster
    namespace: str
    bucket: str

    @property
    def store(self) -> str:
        """The bucket, as a store: this machine reaches it directly."""
        return f"s3://{self.bucket}"

    def kubectl(self, *args: str, input: object = None) -> str:
        """As an administrator, in the namespace; ``input`` goes in as JSON."""
        text = None if input is None else json.dumps(input)
        return self.cluster.kubectl("-n", self.namespace, *args, input=text)

    def get_json(self, *args: str) -> Any:
        """``kubectl get ARGS``, parsed."""
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def upload(self, folder: Path, name: str) -> str:
        """Put a file, or all below a folder, into the bucket; its address."""
        client = s3_client()
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file():
                key = f"{name}/{path.relative_to(folder)}" if folder.is_dir() else name
                client.upload_file(str(path), self.bucket, key)
        return f"{self.store}/{name}"

    def submit(self, run: str = "", **parameters: object) -> str:
        """Make a Workflow of ``swe-argo-evaluate``; its name. Underscores stand for hyphens; ``spec`` may be a dict."""
        values = {"run-id": run} if run else {}
        for name, value in parameters.items():
            values[name.replace("_", "-")] = json.dumps(value) if isinstance(value, dict) else str(value)
        workflow = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": "run-"},
            "spec": {
                "workflowTemplateRef": {"name": "swe-argo-evaluate"},
                "arguments": {"parameters": [{"name": name, "value": value} for name, value in values.items()]},
            },
        }
        created = json.loads(self.kubectl("create", "-o", "json", "-f", "-", input=workflow))
        return str(created["metadata"]["name"])

    def workflow(self, name: str) -> dict[str, Any]:
        return dict(self.get_json("workflow", name))

    def nodes(self, name: str) -> list[Node]:
        """What Argo says of every part of a Workflow."""
        return list((self.workflow(name)["status"].get("nodes") or {}).values())

    def node(self, name: str, display: str) -> Node:
        """The node that the UI shows under this name."""
        matches = [node for node in self.nodes(name) if node["displayName"] == display]
        assert matches, f"{name} has no node {display}:\n{self.describe(name)}"
        return matches[0]

    def children(self, name: str) -> list[str]:
        """The shards of a run's Workflow."""
        items = self.get_json("workflows", "-l", f"swe-argo/parent={name}")["items"]
        return sorted(item["metadata"]["name"] for item in items)

    def ended(self, name: str, seconds: float = PATIENCE_S) -> str:
        """Wait for a Workflow's end; its phase."""
        query = ["get", "workflow", name, "-o=jsonpath={.status.phase}"]
        phase = ""

        def over() -> bool:
            nonlocal phase
            phase = self.kubectl(*query)
            time.sleep(0.5)  # kubectl is a large program, and there are two cores
            return phase in ENDED

        assert settles(over, seconds), f"{name} is {phase or 'not begun'} after {seconds} s:\n{self.describe(name)}"
        return phase

    def succeeds(self, name: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a Workflow's end, which must be a good one."""
        phase = self.ended(name, seconds)
        assert phase == "Succeeded", f"{name} is {phase}:\n{self.describe(name)}"

    def describe(self, name: str) -> str:
        """A Workflow and its shards, a line a node that did not simply succeed, for whoever reads a failed test."""
        lines = []
        for workflow_name in [name, *self.children(name)]:
            status = self.workflow(workflow_name).get("status") or {}
            lines.append(f"{workflow_name}: {status.get('phase')} {status.get('message') or ''}")
            for node in (status.get("nodes") or {}).values():
                if node["type"] in ("Pod", "Retry", "Skipped") and node["phase"] not in ("Succeeded", "Omitted"):
                    lines.append(f"  {node['displayName']} ({node['id']}): {node['phase']} {node.get('message') or ''}")
        return "\n".join(lines)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods that are not on their way out."""
        items = self.get_json("pods", "-l", selector)["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def running(self, selector: str, container: str = "", seconds: float = PATIENCE_S) -> str:
        """Wait until a pod's container runs (any of them by default); the pod's name."""
        names: list[str] = []

        def runs() -> bool:
            for pod in self.pods(selector):
                for status in pod["status"].get("containerStatuses", []):
                    if "running" in status["state"] and container in ("", status["name"]):
                        names.append(pod["metadata"]["name"])
            return bool(names)

        assert settles(runs, seconds), f"no pod with {selector} runs after {seconds} s:\n{self.events()}"
        return names[0]

    def events(self) -> str:
        """The last things that happened in the namespace."""
        return "\n".join(self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()[-15:])

    def places(self) -> int:
        """How many places of the units' semaphore are taken, as Argo's controller counts them."""
        with urllib.request.urlopen(METRICS, timeout=30) as answer:
            text = answer.read().decode()
        line = (
            rf'^argo_workflows_locks_held{{lock_name="swe-argo-limits/units",namespace="{self.namespace}",.*}} (\d+)$'
        )
        match = re.search(line, text, re.MULTILINE)
        return int(match[1]) if match else 0

    def sandboxes(self) -> list[str]:
        """What is left of sandboxes when all that is on its way out is gone."""

        def names() -> list[str]:
            return self.kubectl("get", "pods", "-l", "swe-argo/role", "-o", "name").split()

        settles(lambda: not names())
        return names()


def s3_client() -> Any:
    """A client of the cluster's S3 server: any key will do."""
    return boto3.client(
        "s3",
        endpoint_url=f"http://{S3[0]}:{S3[1]}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(s3={"addressing_style": "path"}),
    )


@contextlib.contextmanager
def installed(cluster: Cluster, endpoint: str, *flags: str) -> Iterator[Pipeline]:
    """A namespace with the chart and a bucket. All are gone at the end."""
    with cluster.namespace("argo-runs") as namespace, own_bucket(namespace) as bucket:
        keys = ["--from-literal=AWS_ACCESS_KEY_ID=test", "--from-literal=AWS_SECRET_ACCESS_KEY=test"]
        cluster.kubectl("-n", namespace, "create", "secret", "generic", "bucket-keys", *keys)
        place = {
            "aws.s3.bucket": bucket,
            "aws.s3.endpoint": endpoint,
            "aws.s3.existingSecret": "bucket-keys",
            "image.repository": REPOSITORY,
            "image.pullPolicy": "IfNotPresent",
        }
        words = [word for name, value in place.items() for word in ("--set", f"{name}={value}")]
        result = cluster.command("install", namespace, *TINY, *words, "--set-string", f"image.tag={TAG}", *flags)
        assert result.returncode == 0, result.stderr
        try:
            yield Pipeline(cluster, namespace, bucket)
        finally:
            # Argo's own finalizers, of what still runs, would keep the namespace.
            cluster.kubectl("-n", namespace, "delete", "workflows,cronworkflows", "--all", "--wait=false")
            gone = ["helm", "uninstall", "swe-argo", "--namespace", namespace]
            subprocess.run(gone, env=cluster.environment, check=True, capture_output=True)


@contextlib.contextmanager
def own_bucket(prefix: str) -> Iterator[str]:
    name, client = f"{prefix}-{secrets.token_hex(2)}", s3_client()
    client.create_bucket(Bucket=name)
    try:
        yield name
    finally:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            if keys := [{"Key": entry["Key"]} for entry in page.get("Contents", [])]:
                client.delete_objects(Bucket=name, Delete={"Objects": keys})
        client.delete_bucket(Bucket=name)
