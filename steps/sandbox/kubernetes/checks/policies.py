"""Check, by NetworkPolicies, that sandboxes get exactly the intended network."""

from __future__ import annotations

from kubernetes.client import ApiClient

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.kube.client import Cluster
from swe_argo.steps.kube.requests import Plain, path
from swe_argo.steps.sandbox.kubernetes.checks.rights import allowed_list
from swe_argo.steps.sandbox.kubernetes.namespace import NamespaceSettings
from swe_argo.steps.sandbox.readiness import SandboxNeeds

UNKNOWN = "no right to list networkpolicies in {}: confinement of sandboxes is first tested when one is created"


def check_network(
    cluster: Cluster,
    client: ApiClient,
    spec: SandboxSpec,
    sandbox_needs: SandboxNeeds,
    settings: NamespaceSettings,
    *,
    has_chart: bool,
) -> list[str]:
    """Check the NetworkPolicies; return notices for the user. ``has_chart``: whether the namespace has the chart.

    Raises ConfigError if tests or an agent lack the network that the spec promises, or if no policy limits the network
    of an agent's commands (a notice with ``allow_host``).
    """
    where = f"namespace {cluster.namespace!r} of {cluster.name}"
    if sandbox_needs.grading_network and not settings.grading_network:
        raise ConfigError(
            f"{where} gives tests no network (chart value grading.network is false): use --no-grading-network",
            field="grading.network",
        )
    if not sandbox_needs.solves:
        return []
    policies_path = path("networkpolicies", cluster.namespace)
    policies = allowed_list(client, policies_path, f"listing the NetworkPolicies of {where}")
    labels = {"swe-argo/role": "solve", "swe-argo/network": "open" if spec.solve_network else "none"}
    if spec.solve_network and policies and cut_off(policies, labels):
        raise ConfigError(
            f"the NetworkPolicies of {where} give an agent's sandbox no network: use --no-solve-network",
            field="sandbox.solve_network",
        )
    if not sandbox_needs.acts or (policies and is_confined(policies, labels)):
        return []
    if policies is None and has_chart:
        return [UNKNOWN.format(cluster.namespace)]
    problem = f"no NetworkPolicy of {where} limits the network of an agent's commands"
    if spec.allow_host:
        return [f"{problem}: they have the network access of any pod there"]
    raise ConfigError(
        f"{problem}; install the chart there (helm install swe-argo charts/swe-argo -n {cluster.namespace}), "
        "or allow it with --allow-host",
        field="sandbox.allow_host",
    )


def cut_off(policies: list[Plain], labels: dict[str, str]) -> bool:
    """Return whether a pod with these labels has no egress: a policy limits it, and no policy allows any."""
    specs = [policy["spec"] for policy in policies if _limits(policy, labels)]
    return bool(specs) and not any(spec.get("egress") for spec in specs)


def is_confined(policies: list[Plain], labels: dict[str, str]) -> bool:
    """Return whether a policy limits the egress of a pod with these labels."""
    return any(_limits(policy, labels) for policy in policies)


def _limits(policy: Plain, labels: dict[str, str]) -> bool:
    """Return whether a policy applies to the egress of pods with these labels."""
    return "Egress" in policy_types(policy) and selector_matches(policy["spec"].get("podSelector") or {}, labels)


def policy_types(policy: Plain) -> list[str]:
    """Return the traffic types of a policy; the default includes egress only if it has egress rules."""
    spec = policy["spec"]
    return list(spec.get("policyTypes") or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]))


def selector_matches(selector: Plain, labels: dict[str, str]) -> bool:
    """Return whether a Kubernetes label selector matches; an empty one selects everything."""
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(
        _expression_matches(expression, labels) for expression in selector.get("matchExpressions") or []
    )


def _expression_matches(expression: Plain, labels: dict[str, str]) -> bool:
    """Return whether labels satisfy one matchExpression."""
    key, values = expression["key"], expression.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]
