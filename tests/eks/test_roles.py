"""Who in the cluster may do what at AWS."""

from __future__ import annotations

import re
from typing import Any

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from swe_argo.steps.contracts.validation import validation_key
from swe_argo.steps.reports.flaky_tests import LEDGER
from tests.eks.files import VALUES, group
from tests.paths import ROOT

TEMPLATES = ROOT / "templates" / "argo"


def statements(cluster: dict[str, Any], account: str) -> list[dict[str, Any]]:
    """Return the statements of a service account's policy."""
    (association,) = (
        item for item in cluster["iam"]["podIdentityAssociations"] if item["serviceAccountName"] == account
    )
    return list(association["permissionPolicy"]["Statement"])


def test_cloud_roles_match_accounts(cluster: dict[str, Any]) -> None:
    associations = cluster["iam"]["podIdentityAssociations"]
    assert not any("sandbox" in item["serviceAccountName"] for item in associations)
    # Argo's helper containers only talk to the API server by their account: a pod's role is that of its own. What waits
    # for a child keeps no log, and so never asks S3. Proxy and viewer are no pods of a workflow.
    texts = (file.read_text() for file in TEMPLATES.glob("*.yaml"))
    used = {name for text in texts for name in re.findall(r"serviceAccountName: (\S+)", text)}
    used -= {"swe-argo-executor", "swe-argo-children", "swe-argo-trainer"}
    ours = {item["serviceAccountName"] for item in associations if item["namespace"] == VALUES["NAMESPACE"]}
    assert ours == used | {"swe-argo-proxy", "swe-argo-view"}


def test_cloud_roles_are_limited(cluster: dict[str, Any]) -> None:
    base = "arn:aws:s3:::our-runs/team/"
    folders = ("runs", "logs", "trainings", "inputs", "validations")
    allowed = {*(f"{base}{name}/*" for name in folders), f"{base}.writable", f"{base}{LEDGER}"}
    for association in cluster["iam"]["podIdentityAssociations"]:
        if association["serviceAccountName"] in ("swe-argo-proxy", "swe-argo-view"):
            continue
        for statement in association.get("permissionPolicy", {}).get("Statement", []):
            actions, resources = set(statement["Action"]), statement["Resource"]
            assert all(action.startswith("s3:") and "*" not in action for action in actions)
            if actions == {"s3:ListBucket"}:
                assert resources == "arn:aws:s3:::our-runs"
                prefixes = statement["Condition"]["StringLikeIfExists"]["s3:prefix"]
                assert {"team/runs/*", "team/logs/*"} <= set(prefixes) <= {f"team/{name}/*" for name in folders}
            elif actions == {"s3:GetBucketLocation"}:
                assert resources == "arn:aws:s3:::our-runs"
            else:
                assert set([resources] if isinstance(resources, str) else resources) <= allowed


def test_steps_role_reads_validations(cluster: dict[str, Any]) -> None:
    reach: dict[str, set[str]] = {}
    for statement in statements(cluster, "swe-argo-steps"):
        for action in statement["Action"]:
            reach.setdefault(action, set()).update(statement["Resource"])
    validations = validation_key("verified", "one").partition("/")[0]
    assert f"arn:aws:s3:::our-runs/team/{validations}/*" in reach["s3:GetObject"]
    assert f"arn:aws:s3:::our-runs/team/{LEDGER}" in reach["s3:GetObject"] & reach["s3:PutObject"]


def test_ui_and_view_roles_are_read_only(cluster: dict[str, Any]) -> None:
    for account in ("argo-workflows-server", "swe-argo-view"):
        actions = {action for rule in statements(cluster, account) for action in rule["Action"]}
        assert {action for action in actions if "Object" in action} == {"s3:GetObject"}


def test_view_role_reads_what_pages_need(cluster: dict[str, Any]) -> None:
    reach = {action: item["Resource"] for item in statements(cluster, "swe-argo-view") for action in item["Action"]}
    read = {key(RunFile, "one").partition("/")[0], validation_key("verified", "one").partition("/")[0]}
    assert set(reach["s3:GetObject"]) == {
        f"arn:aws:s3:::our-runs/team/{name}" for name in (*(f"{n}/*" for n in read), LEDGER)
    }


def test_proxy_role_reads_only_trainings(cluster: dict[str, Any]) -> None:
    folder = key(WeightsFile, "one").partition("/")[0]
    reach = {action: item["Resource"] for item in statements(cluster, "swe-argo-proxy") for action in item["Action"]}
    assert reach == {
        "s3:GetObject": f"arn:aws:s3:::our-runs/team/{folder}/*",
        "s3:ListBucket": "arn:aws:s3:::our-runs",
        "s3:GetBucketLocation": "arn:aws:s3:::our-runs",
    }


def test_node_role_can_fill_image_cache(cluster: dict[str, Any]) -> None:
    (statement,) = group(cluster, "cpu-sandbox")["iam"]["attachPolicy"]["Statement"]
    assert set(statement["Action"]) == {"ecr:BatchImportUpstreamImage", "ecr:CreateRepository"}
    assert statement["Resource"] == "arn:aws:ecr:eu-central-1:*:repository/docker-hub/*"
