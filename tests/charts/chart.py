"""The chart, rendered by Helm without a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
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


def render(*sets: str, case: Path | None = None, namespace: str = NAMESPACE) -> Rendered:
    """The chart with these ``--set`` and the values of one of ci/."""
    flags = [*(["--values", str(case)] if case else []), *(f"--set={item}" for item in sets)]
    result = try_render(*flags, namespace=namespace)
    assert result.returncode == 0, result.stderr
    return Rendered([item for item in yaml.load_all(result.stdout, _LOADER) if item])


def check_confined_as_steps(chart: Rendered, pod: dict[str, Any]) -> None:
    """``pod``: the template of one with one container, which speaks to no API server."""
    (solve,) = (item for item in FILES["swe-argo-shard"]["spec"]["templates"] if item["name"] == "solve")
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == solve["container"]["securityContext"]
    assert pod["spec"]["securityContext"] == FILES["swe-argo-shard"]["spec"]["securityContext"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    account = chart.one("ServiceAccount", pod["spec"]["serviceAccountName"])
    assert account["automountServiceAccountToken"] is False
    bound = [item["name"] for binding in chart.all("RoleBinding") for item in binding["subjects"]]
    assert account["metadata"]["name"] not in bound


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
