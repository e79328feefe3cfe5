"""Check, before a run creates any object, that a cluster can run its sandboxes and limits their network."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from kubernetes.client import ApiClient, ApiException

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.contracts.ids import through_registry
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError, StepError
from swe_argo.steps.kube.client import Cluster, error_message
from swe_argo.steps.kube.requests import Plain, path, request_object
from swe_argo.steps.sandbox.kubernetes.checks.capacity import amounts, check_nodes, expression_matches, too_small
from swe_argo.steps.sandbox.kubernetes.checks.rights import PATIENCE, allowed_list, check_namespace, check_rights
from swe_argo.steps.sandbox.kubernetes.namespace import CONFIG_MAP, NamespaceSettings, call, read, refusal_failure
from swe_argo.steps.sandbox.kubernetes.pod_spec import (
    FileDelivery,
    add_agent_files,
    agent_image,
    file_deliveries,
    manifest,
    owner_reference,
)
from swe_argo.steps.sandbox.protocol import ReadinessResult, SandboxNeeds, SandboxRequest

MOST_IMAGES = 8
"""Maximum number of image kinds to try, so that plan stays quick."""
DEADLINE_S = 3600.0
"""Maximum seconds that a sandbox outlives its longest command (steps/agents/solving.py, steps/grade.py)."""


def check_cluster(cluster: Cluster, spec: SandboxSpec, sandbox_needs: SandboxNeeds) -> ReadinessResult:
    """Check a cluster by requests that change nothing; pods are sent as a dry run.

    Raises ConfigError if the cluster does not answer, namespace or rights are missing, there is too little or too much
    network, or policies, quotas or nodes do not admit this run's pods; InfraError if it stops answering.
    """
    with cluster.client() as client:
        check_namespace(cluster, client, spec)
        owner = owner_reference()
        notices = check_rights(cluster, client, outside=not owner or owner["kind"] == "Lease")
        settings, charted = read(cluster)
        if not charted:
            notices.append(
                f"namespace {cluster.namespace!r} has no ConfigMap {CONFIG_MAP}: nothing confines sandboxes there; "
                f"helm install swe-argo charts/swe-argo -n {cluster.namespace}"
            )
        notices += check_network(cluster, client, spec, sandbox_needs, settings, has_chart=charted)
        pods = pods_of(spec, sandbox_needs, settings)
        # Without the right to read quotas, the dry run reports the first exceeded one.
        where = f"namespace {cluster.namespace!r} of {cluster.name}"
        quotas = allowed_list(client, path("resourcequotas", cluster.namespace), f"listing the quotas of {where}")
        if problem := too_small(quotas or [], pods[0]):
            raise ConfigError(
                f"{where} is too small for one sandbox: {problem}; raise the quota, or request less",
                field="sandbox.kubernetes.namespace",
            )
        admitted, notes = try_ways(cluster, client, spec, sandbox_needs, settings)
        return ReadinessResult(notices=[*notices, *notes, *check_nodes(cluster, client, spec, (admitted or pods)[0])])


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
        unknown = f"no right to list networkpolicies in {cluster.namespace}"
        return [f"{unknown}: confinement of sandboxes is first tested when one is created"]
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
    spec, selector = policy["spec"], policy["spec"].get("podSelector") or {}
    # Without policyTypes, a policy is about egress only if it has egress rules.
    is_about_egress = "Egress" in spec["policyTypes"] if spec.get("policyTypes") else bool(spec.get("egress"))
    return (
        is_about_egress
        and (selector.get("matchLabels") or {}).items() <= labels.items()
        and all(
            expression_matches(expression, labels.get(expression["key"]))
            for expression in selector.get("matchExpressions") or []
        )
    )


def pods_of(
    spec: SandboxSpec, sandbox_needs: SandboxNeeds, namespace: NamespaceSettings, way: FileDelivery = "image-volume"
) -> list[Plain]:
    """Return manifests for the dry run: a pod per role (solve, grade), and one per further kind of image.

    The first pod gets the agent's files, if any, by ``way``. Raises ConfigError for a bad node selector, and for files
    without an image.
    """
    images = example_images(sandbox_needs.images, spec.registry or namespace.registry)
    roles = {"solve": spec.solve_network} if sandbox_needs.solves else {}
    roles |= {"grade": sandbox_needs.grading_network}
    pairs = [(role, image) for image in images[:1] for role in roles] + [("grade", image) for image in images[1:]]
    owner = owner_reference() or {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "name": "swe-argo-plan",
        "uid": str(uuid.uuid4()),
    }
    pods = [
        manifest(
            SandboxRequest(
                name=f"sb-plan-{role}-{secrets.token_hex(4)}",
                image=image,
                deadline_s=sandbox_needs.timeout_s + DEADLINE_S,
                network=roles[role],
                labels={"run": "plan", "instance": "plan", "attempt": "1", "role": role},
                cpus=spec.cpus,
                memory_mb=spec.memory_mb,
                disk_mb=spec.disk_mb,
                platform=spec.platform,
                registry=spec.registry,
                isolated=sandbox_needs.acts and not spec.allow_host,
            ),
            namespace,
            spec,
            owner,
        )
        for role, image in pairs
    ]
    if sandbox_needs.bundle and sandbox_needs.solves:
        pods[:1] = [add_agent_files(pods[0], sandbox_needs.bundle, namespace, way)]
    return pods


def try_ways(
    cluster: Cluster, client: ApiClient, spec: SandboxSpec, sandbox_needs: SandboxNeeds, namespace: NamespaceSettings
) -> tuple[list[Plain], list[str]]:
    """Call ``try_admission`` for the run's pods, with the first way for an agent's files that works, else the last."""
    *first_ways, last = file_deliveries(namespace) if sandbox_needs.bundle else ("copy",)
    for way in first_ways:
        with suppress(ConfigError):
            pods, notes = try_admission(cluster, client, pods_of(spec, sandbox_needs, namespace, way))
            if not pods or agent_image(pods[0]):
                return pods, notes
    return try_admission(cluster, client, pods_of(spec, sandbox_needs, namespace, last))


def example_images(images: Iterable[str], registry: str | None) -> list[str]:
    """Return one image of each kind that policies distinguish, at most MOST_IMAGES.

    A kind is the part before the last slash, and whether the image has a digest, the tag latest or another tag.
    """
    kinds: dict[tuple[str, str], str] = {}
    for image in images:
        folder, _, last = through_registry(image, registry).rpartition("/")
        # Without a colon, rpartition returns the whole name: no tag, which means latest.
        tag = "digest" if "@" in last else "latest" if last.rpartition(":")[2] in (last, "latest") else "tag"
        kinds.setdefault((folder, tag), image)
    return list(kinds.values())[:MOST_IMAGES]


def try_admission(cluster: Cluster, client: ApiClient, pods: list[Plain]) -> tuple[list[Plain], list[str]]:
    """Return the pods as the cluster would create them, and notices for the user. Raises the refusal of a pod."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda pod: _try_one(cluster, client, pod), pods))
    notices = dict.fromkeys(answer for answer in answers if isinstance(answer, str))
    return [answer for answer in answers if not isinstance(answer, str)], list(notices)


def _try_one(cluster: Cluster, client: ApiClient, pod: Plain) -> Plain | str:
    """Send a pod as a dry run; return it as the cluster would create it, or a notice."""
    role = pod["metadata"]["labels"]["swe-argo/role"]
    doing = f"testing admission of a {role} sandbox in {cluster.namespace}"
    create = partial(request_object, client, "POST", path("pods", cluster.namespace), pod, query={"dryRun": "All"})
    try:
        return call(create, doing, PATIENCE)
    except ApiException as error:
        text = error_message(error)
        if "does not support dry run" in text:
            return f"the cluster cannot test admission of sandboxes: {text}"
        if "exceeded quota" in text and not never_fits(text):
            return f"the quota of {cluster.namespace} is used up, so sandboxes will wait: {without_pod_name(text)}"
        raise _refusal(cluster, pod, error) from error


def never_fits(text: str) -> bool:
    """Return whether an "exceeded quota" message is about a quota that is too small even when unused."""
    parts = re.search(r"requested: (\S*), used: \S*, limited: (\S*)", text)
    if not parts:
        return False
    requested, limit = (amounts(dict(pair.split("=", 1) for pair in part.split(","))) for part in parts.groups())
    return any(amount > limit[name] for name, amount in requested.items() if name in limit)


def without_pod_name(text: str) -> str:
    """Return the message without the name of the trial pod."""
    return re.sub(r'^(pods|Pod) "sb-plan-[^"]*" is (forbidden|invalid): ', "", text)


def _refusal(cluster: Cluster, pod: Plain, error: ApiException) -> StepError:
    """Return the failure for a refused pod, with the setting to change: namespace, registry or sandbox."""
    role, image = pod["metadata"]["labels"]["swe-argo/role"], pod["spec"]["containers"][0]["image"]
    text = without_pod_name(error_message(error))
    where = f"namespace {cluster.namespace!r} of {cluster.name}"
    field, doing = "sandbox.kubernetes.namespace", f"testing admission of a {role} sandbox"
    if error.status == 403 and "cannot create resource" in text:
        return refusal_failure(error, doing, field=field)
    if "exceeded quota" in text:
        reason = f"the quota of {where} is too small for one sandbox: {text}"
        return ConfigError(reason, field=field, detail=str(error))
    if error.status not in (400, 403, 422):
        return refusal_failure(error, f"{doing} in {where}", field=field)
    about_image = "image" in text.lower()
    return ConfigError(
        f"{where} refuses a {role} sandbox of image {image}: {text}"
        + ("; set --registry to a registry that the policy allows" if about_image else ""),
        field="sandbox.registry" if about_image else "sandbox",
        failure_class=FailureClass.ADMISSION,
        detail=str(error),
    )
