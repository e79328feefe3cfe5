"""Accounts of a test cluster that may do only what a test gives them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.client import Configuration

from swe_argo.steps.kube import client
from tests.cluster.installed_chart import account_kubeconfig
from tests.cluster.real_cluster import Cluster
from tests.workflows.command import wait_for

Rule = tuple[str, str, str]
"""Verbs, resources and API group, several with commas between."""

RUNNER: list[Rule] = [
    ("create,get,list,watch,delete", "pods", ""),
    ("get,create", "pods/exec", ""),
    ("list", "events", ""),
    ("get", "configmaps", ""),
    ("create,get,list,update,delete", "leases", "coordination.k8s.io"),
]
"""What sandboxes need, with nothing to look around with."""


def reached(kubeconfig: Path, namespace: str) -> client.Cluster:
    """The cluster as the backend's code has it, by the account of this kubeconfig."""
    configuration = Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.retries = False
    return client.Cluster(configuration, namespace, "testing")


def account(
    cluster: Cluster, namespace: str, folder: Path, rules: list[Rule], *, everywhere: Sequence[Rule] = ()
) -> Path:
    """A kubeconfig of a new service account with these rights in the namespace, and ``everywhere`` in the cluster.

    Rights in the whole cluster go with the namespace: their role is bound to an account of it.
    """
    name = f"account-{secrets.token_hex(3)}"  # never known by other rights, which are in force for a moment yet
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    identity = {"name": name, "namespace": namespace}
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": identity}]
    for kind, role_rules in (("", rules), ("Cluster", everywhere)):
        full = f"{namespace}-{name}" if kind else name
        meta = {"name": full} if kind else {"name": full, "namespace": namespace}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{kind}Role", "name": full}
        head: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
        objects.append({**head, "kind": f"{kind}Role", "rules": [_rule(rule) for rule in role_rules]})
        objects.append({**head, "kind": f"{kind}RoleBinding", "roleRef": ref, "subjects": [subject]})
        if kind and not role_rules:
            del objects[-2:]
    cluster.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    kubeconfig = account_kubeconfig(cluster, namespace, name, folder)
    expected = {resource for _, resources, _ in (*rules, *everywhere) for resource in resources.split(",")}
    wait_for(lambda: expected <= _read_rights(cluster, namespace, kubeconfig))
    return kubeconfig


def _read_rights(cluster: Cluster, namespace: str, kubeconfig: Path) -> set[str]:
    """On what an account has rights as far as the API server knows: it learns of roles a moment after they are made."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    words = ("--kubeconfig", str(kubeconfig), "create", "--validate=false", "-f", "-", "-o", "json")
    status = json.loads(cluster.kubectl(*words, input=json.dumps(review)))["status"]
    return {resource for rule in status["resourceRules"] for resource in rule["resources"]}


def forget(cluster: Cluster, namespace: str) -> None:
    """Remove the rights in the whole cluster of a namespace's accounts: they do not go with it."""
    kinds = "clusterroles,clusterrolebindings"
    names = cluster.kubectl("get", kinds, "-o", "name").split()
    if mine := [name for name in names if f"/{namespace}-account-" in name]:
        cluster.kubectl("delete", *mine)


def _rule(rule: Rule) -> dict[str, list[str]]:
    verbs, resources, group = rule
    return {"apiGroups": [group], "resources": resources.split(","), "verbs": verbs.split(",")}
