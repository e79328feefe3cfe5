"""Who in the cluster may do what at AWS."""

from __future__ import annotations

import re
from typing import Any

import pytest

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import WeightsFile
from swe_argo.steps.contracts.validation import validation_key
from swe_argo.steps.reports.flakes.ledger import LEDGER
from tests.eks.files import VALUES, group
from tests.paths import ROOT

TEMPLATES = ROOT / "templates" / "argo"


def accounts(cluster: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in cluster["iam"]["podIdentityAssociations"]:
        found.setdefault(each["namespace"], set()).add(each["serviceAccountName"])
    return found


def used_accounts() -> set[str]:
    """Those that pods of the rendered workflows run as."""
    texts = [file.read_text() for file in sorted(TEMPLATES.glob("*.yaml"))]
    found = {name for text in texts for name in re.findall(r"serviceAccountName: (\S+)", text)}
    if not found:
        pytest.skip("templates/argo is not rendered")
    return found


def test_the_accounts_with_roles_are_those_of_the_workflows_pods(cluster: dict[str, Any]) -> None:
    # Argo's helper containers only talk to the API server by their account: a pod's role is that of its own. What waits
    # for a child keeps no log, and so never asks S3. Proxy and viewer are no pods of a workflow.
    used = used_accounts() - {"swe-argo-executor", "swe-argo-children", "swe-argo-trainer"}
    used |= {"swe-argo-proxy", "swe-argo-view"}
    assert accounts(cluster)[VALUES["NAMESPACE"]] == used


def test_sandboxes_have_no_role(cluster: dict[str, Any]) -> None:
    assert not any("sandbox" in name for names in accounts(cluster).values() for name in names)


def test_roles_reach_the_folders_of_runs_trainings_and_logs_and_nothing_else_of_s3(cluster: dict[str, Any]) -> None:
    base = "arn:aws:s3:::our-runs/team/"
    folders = ("runs", "logs", "trainings", "inputs", "validations")
    allowed = {*(f"{base}{name}/*" for name in folders), f"{base}.writable", f"{base}{LEDGER}"}
    for each in cluster["iam"]["podIdentityAssociations"]:
        if each["serviceAccountName"] in ("swe-argo-proxy", "swe-argo-view"):
            continue
        for statement in each.get("permissionPolicy", {}).get("Statement", []):
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


def test_the_steps_read_what_is_known_against_instances_and_keep_the_ledger_of_flips(cluster: dict[str, Any]) -> None:
    reach: dict[str, set[str]] = {}
    (policy,) = (
        each["permissionPolicy"]["Statement"]
        for each in cluster["iam"]["podIdentityAssociations"]
        if each["serviceAccountName"] == "swe-argo-steps"
    )
    for statement in policy:
        for action in statement["Action"]:
            reach.setdefault(action, set()).update(statement["Resource"])
    validations = validation_key("verified", "one").partition("/")[0]
    assert f"arn:aws:s3:::our-runs/team/{validations}/*" in reach["s3:GetObject"]
    assert f"arn:aws:s3:::our-runs/team/{LEDGER}" in reach["s3:GetObject"] & reach["s3:PutObject"]


def test_the_ui_and_the_viewer_read_and_write_nothing(cluster: dict[str, Any]) -> None:
    objects = {
        each["serviceAccountName"]: {
            action for one in each["permissionPolicy"]["Statement"] for action in one["Action"] if "Object" in action
        }
        for each in cluster["iam"]["podIdentityAssociations"]
        if "permissionPolicy" in each
    }
    assert objects["argo-workflows-server"] == objects["swe-argo-view"] == {"s3:GetObject"}
    assert "swe-argo-children" not in objects


def test_the_viewer_reads_what_its_pages_are_made_of(cluster: dict[str, Any]) -> None:
    (policy,) = (
        each["permissionPolicy"]["Statement"]
        for each in cluster["iam"]["podIdentityAssociations"]
        if each["serviceAccountName"] == "swe-argo-view"
    )
    reach = {action: each["Resource"] for each in policy for action in each["Action"]}
    read = {key(RunFile, "one").partition("/")[0], validation_key("verified", "one").partition("/")[0]}
    assert set(reach["s3:GetObject"]) == {
        f"arn:aws:s3:::our-runs/team/{name}" for name in (*(f"{n}/*" for n in read), LEDGER)
    }


def test_the_proxy_reads_what_trainings_leave_and_nothing_else(cluster: dict[str, Any]) -> None:
    (policy,) = (
        each["permissionPolicy"]["Statement"]
        for each in cluster["iam"]["podIdentityAssociations"]
        if each["serviceAccountName"] == "swe-argo-proxy"
    )
    folder = key(WeightsFile, "one").partition("/")[0]
    reach = {action: each["Resource"] for each in policy for action in each["Action"]}
    assert reach == {
        "s3:GetObject": f"arn:aws:s3:::our-runs/team/{folder}/*",
        "s3:ListBucket": "arn:aws:s3:::our-runs",
        "s3:GetBucketLocation": "arn:aws:s3:::our-runs",
    }


def test_the_node_group_may_fill_the_cache_of_images(cluster: dict[str, Any]) -> None:
    (statement,) = group(cluster, "cpu-sandbox")["iam"]["attachPolicy"]["Statement"]
    assert set(statement["Action"]) == {"ecr:BatchImportUpstreamImage", "ecr:CreateRepository"}
    assert statement["Resource"] == "arn:aws:ecr:eu-central-1:*:repository/docker-hub/*"
