"""Clean-up after a training's Workflow: the Workflows that it made end too, because Argo stops no children itself."""

from __future__ import annotations

import sys

from swe_argo.steps.argo.shards import stop_workflows
from swe_argo.steps.contracts.chain import HALT
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.contracts.workflow_marks import children_of
from swe_argo.steps.entry import Flags, run_program
from swe_argo.steps.kube.kubeconfig import find_cluster


def main(flags: Flags) -> None:
    """Stop the Workflows that the training's Workflow created; an evaluation still writes its report.

    Each of them ends those that it created itself. Raises InfraError if they do not end in time or the API server does
    not answer, ConfigError if a permission is missing.
    """
    cluster = find_cluster(KubernetesSpec(namespace=flags["namespace"]))
    title = f"the Workflows that {flags['workflow']} made"
    stopped = stop_workflows(cluster, children_of(flags["workflow"]), title, patience_s=flags["within"])
    if stopped:
        sys.stderr.write(f"stopped: {', '.join(stopped)}\n")


if __name__ == "__main__":
    run_program(HALT, main)
