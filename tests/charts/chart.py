"""The chart, rendered by Helm without a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT

CHART = ROOT / "charts" / "swe-argo"
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((CHART / "argo").glob("*.yaml"))}
"""Name -> object of Argo's, as the chart has it before it is rendered."""
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "evals"
KUBERNETES = "1.34"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast


def helm() -> str:
    """The program: on the PATH, or among those that ``cluster/local/cluster`` built. Skips where there is none."""
    default = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "swe-argo-cluster"
    built = Path(os.environ.get("SWE_ARGO_CLUSTER") or default) / "bin"
    path = shutil.which("helm") or shutil.which("helm", path=built)
    if not path:
        pytest.skip("needs helm: cluster/local/cluster build helm, or helm.sh")
    return path


def try_render(*flags: str | Path, namespace: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    """``helm template`` with these flags, whose failure is a result."""
    command = [helm(), "template", "mine", CHART, "--namespace", namespace, "--kube-version", KUBERNETES, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Rendered:
    """The objects that the chart makes."""

    objects: list[dict[str, Any]]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [manifest for manifest in self.objects if manifest["kind"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (match,) = (manifest for manifest in self.all(kind) if manifest["metadata"]["name"] == name)
        return match

    def names(self, kind: str) -> set[str]:
        return {manifest["metadata"]["name"] for manifest in self.all(kind)}

    def settings(self) -> dict[str, Any]:
        """The document that runners read."""
        text = self.one("ConfigMap", "swe-argo-sandbox")["data"]["sandbox.yaml"]
        document: dict[str, Any] = yaml.safe_load(text)
        return document


@cache
def render(*sets: str, case: Path | None = None, namespace: str = NAMESPACE) -> Rendered:
    """Return the chart with these ``--set`` and the values of one of ci/. Callers share the objects."""
    flags = [*(["--values", str(case)] if case else []), *(f"--set={item}" for item in sets)]
    result = try_render(*flags, namespace=namespace)
    assert result.returncode == 0, result.stderr
    return Rendered([item for item in yaml.load_all(result.stdout, _LOADER) if item])


def refused(*sets: str) -> str:
    """Return the one line with which the chart refuses these ``--set``."""
    result = try_render(*(f"--set={item}" for item in sets))
    assert result.returncode != 0
    (line,) = (line for line in result.stderr.splitlines() if line and "--debug" not in line)
    return line


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the one container of a pod or its template."""
    (only,) = pod["spec"]["containers"]
    return dict(only)


def check_confined_as_steps(chart: Rendered, pod: dict[str, Any]) -> None:
    """``pod``: the template of one with one container, which speaks to no API server."""
    (solve,) = (item for item in FILES["swe-argo-shard"]["spec"]["templates"] if item["name"] == "solve")
    assert container(pod)["securityContext"] == solve["container"]["securityContext"]
    assert pod["spec"]["securityContext"] == FILES["swe-argo-shard"]["spec"]["securityContext"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    account = chart.one("ServiceAccount", pod["spec"]["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    bound = [item["name"] for binding in chart.all("RoleBinding") for item in binding["subjects"]]
    assert account["metadata"]["name"] not in bound


def reaches(policy: dict[str, Any], address: str, port: int = 443) -> bool:
    """Return whether a policy's egress rules let TCP to this address and port through."""
    to = ip_address(address)
    for rule in policy["spec"]["egress"]:
        ports = [item for item in rule.get("ports", [{"protocol": "TCP", "port": port}]) if item["protocol"] == "TCP"]
        if any(item["port"] <= port <= item.get("endPort", item["port"]) for item in ports):
            for block in (peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer):
                excluded = (ip_network(item) for item in block.get("except", []))
                if to in ip_network(block["cidr"]) and not any(to in network for network in excluded):
                    return True
    return False


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector is met (matchLabels; matchExpressions In, Exists and DoesNotExist)."""
    pairs = selector.get("matchLabels", {}).items()
    return all(labels.get(key) == value for key, value in pairs) and all(
        _met(requirement, labels) for requirement in selector.get("matchExpressions", [])
    )


def _met(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return bool((key in labels) == (operator == "Exists"))
    assert operator == "In", operator
    return labels.get(key) in list(expression["values"])
