"""The check that sandboxes get exactly the intended network, as far as NetworkPolicies show."""

from __future__ import annotations

from kubernetes.client import ApiClient

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain, path
from swe_argo.steps.sandbox.kubernetes.checks.rights import allowed_list
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.readiness import SandboxNeeds

UNKNOWN = "no right to list networkpolicies in {}: whether they confine sandboxes shows when one is made"


def check_network(
    cluster: Cluster,
    client: ApiClient,
    spec: SandboxSpec,
    sandbox_needs: SandboxNeeds,
    settings: NamespaceSettings,
    *,
    charted: bool,
) -> list[str]:
    """Check the NetworkPolicies; return notices for a run's user. ``charted``: the chart is installed.

    Raises ConfigError if tests or an agent lack promised network, or an agent's commands have unintended network.
    """
    where = f"namespace {cluster.namespace!r} of {cluster.name}"
    if sandbox_needs.grading_network and not settings.grading_network:
        raise ConfigError(
            f"{where} gives tests no network (chart value grading.network): grade without, by --no-grading-network",
            field="grading.network",
        )
    if not sandbox_needs.solves:
        return []
    policies_path = path("networkpolicies", cluster.namespace)
    policies = allowed_list(client, policies_path, f"listing the NetworkPolicies of {where}")
    labels = {"swe-argo/role": "solve", "swe-argo/network": "open" if spec.solve_network else "none"}
    if spec.solve_network and policies and cut_off(policies, labels):
        raise ConfigError(
            f"the NetworkPolicies of {where} give an agent's sandbox no network: go without, by --no-solve-network",
            field="sandbox.solve_network",
        )
    if not sandbox_needs.acts or (policies and is_confined(policies, labels)):
        return []
    if policies is None and charted:
        return [UNKNOWN.format(cluster.namespace)]
    nothing = f"no NetworkPolicy of {where} keeps an agent's commands from the network"
    if spec.allow_host:
        return [f"{nothing}: they reach what any pod there reaches"]
    raise ConfigError(
        f"{nothing}; install the chart there (helm install swe-argo charts/swe-argo -n {cluster.namespace}), "
        "or allow it with --allow-host",
        field="sandbox.allow_host",
    )


def cut_off(policies: list[Plain], labels: dict[str, str]) -> bool:
    """Return whether a pod with these labels has no egress at all: policies add up, and none of these allows any."""
    mine = [policy["spec"] for policy in policies if _limits(policy, labels)]
    return bool(mine) and not any(spec.get("egress") for spec in mine)


def is_confined(policies: list[Plain], labels: dict[str, str]) -> bool:
    """Return whether some policy of the namespace limits the egress of a pod with these labels."""
    return any(_limits(policy, labels) for policy in policies)


def _limits(policy: Plain, labels: dict[str, str]) -> bool:
    return "Egress" in policy_types(policy) and selector_matches(policy["spec"].get("podSelector") or {}, labels)


def policy_types(policy: Plain) -> list[str]:
    """Return the traffic types of a policy; by default egress only if it has rules for it."""
    spec = policy["spec"]
    return list(spec.get("policyTypes") or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]))


def selector_matches(selector: Plain, labels: dict[str, str]) -> bool:
    """Return whether a Kubernetes label selector matches; an empty one selects everything."""
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


def _holds(expression: Plain, labels: dict[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
