"""The pods of a run: image, rights, scheduling, and the files that are kept of them."""

from __future__ import annotations

from swe_argo.steps.contracts.chain import GRADE, SOLVE
from swe_argo.workflows.parameters import setting
from tests.workflows.pipeline.rendered import Manifests, tables, texts

SANDBOXES = ("solve", "grade")
ACCOUNTS = {
    "plan": ("swe-argo-runner", True),
    "child": ("swe-argo-children", None),
    "stop": ("swe-argo-children", None),
    "report": ("swe-argo-steps", False),
    "canary": ("swe-argo-steps", False),
    "compare": ("swe-argo-steps", False),
    "finalize": ("swe-argo-finalizer", True),
    "list": ("swe-argo-steps", False),
    "solve": ("swe-argo-runner", True),
    "grade": ("swe-argo-runner", True),
    "plan-training": ("swe-argo-steps", False),
    "make-round": ("swe-argo-trainer", None),
    "plan-rollouts": ("swe-argo-steps", False),
    "rollouts": ("swe-argo-trainer", None),
    "learn": ("swe-argo-steps", False),
    "plan-measurement": ("swe-argo-steps", False),
    "measurement": ("swe-argo-trainer", None),
    "halt": ("swe-argo-finalizer", True),
}
"""Step -> its account, and whether it calls the API itself; None: Argo's executor makes or changes a Workflow."""
STAYS = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def test_steps_know_their_pod(argo: Manifests) -> None:
    expected = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}
    for where, item in argo.templates():
        assert not item.get("daemon"), where
        assert not item.get("sidecars"), where
    for where, item in argo.containers():
        variables = {
            variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            for variable in item["container"]["env"]
        }
        assert variables.items() >= expected.items(), where
    for name in SANDBOXES:
        assert "--try=$(POD_UID)" in argo.arguments(name), "a sandbox is named after its try"
        assert any("retries" in text and "lastRetry.exitCode" in text for text in texts(argo.arguments(name))), name
    # A model's answers are kept in the bucket under the name of the pod, where a failure of the try lies too.
    store = f"--store=s3://{setting('bucket')}/{setting('prefix')}"
    assert {store, "--kept-as=$(POD_NAME)"} <= {*argo.arguments("solve")}
    secrets = [item["secretRef"]["name"] for item in argo.template("solve")["container"]["envFrom"]]
    assert setting("s3-secret") in secrets


def test_containers_use_chart_image(argo: Manifests) -> None:
    for where, template in argo.containers():
        container = template["container"]
        assert container["image"] == setting("training-image" if template["name"] == "learn" else "image"), where
        assert container["command"], where
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}, where
        assert "memory" in container["resources"]["limits"], where


def test_only_api_callers_have_tokens(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        assert spec["automountServiceAccountToken"] is False, where
        assert spec["executor"] == {"serviceAccountName": "swe-argo-executor"}, where
        assert spec["serviceAccountName"] == "swe-argo-steps", where
    accounts = {
        item["name"]: (item.get("serviceAccountName"), item.get("automountServiceAccountToken"))
        for _, item in argo.pods()
    }
    assert accounts == ACCOUNTS
    executors = {item["name"]: item["executor"] for _, item in argo.templates() if "executor" in item}
    assert executors == {name: {"serviceAccountName": of} for name, (of, token) in ACCOUNTS.items() if token is None}


def test_pods_have_no_root(argo: Manifests) -> None:
    for where, spec in argo.workflows():
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert not spec.get("hostNetwork"), where
        assert not any("hostPath" in table for _, table in tables(spec)), where
    for where, template in argo.containers():
        confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        assert template["container"]["securityContext"] == confined | {"capabilities": {"drop": ["ALL"]}}, where
        assert "securityContext" not in template, where


def test_pods_follow_chart_scheduling(argo: Manifests) -> None:
    for where, entry in argo.pods():
        meta = entry["metadata"]
        assert meta["annotations"].items() >= STAYS.items(), where
        kind = "step" if entry["name"] in SANDBOXES else "control" if "container" in entry else "waiter"
        assert entry["podSpecPatch"] == setting(f"{kind}-pod"), where
        assert meta["labels"].keys() == {"swe-argo/step", "swe-argo/run"}, where
        assert meta["labels"]["swe-argo/step"] == entry["name"], where


def test_artifacts_use_store_keys(argo: Manifests) -> None:
    """Files that a step gives whenever it ends well are required, others are optional."""
    required = {step.name: {kind.file for kind in step.gives} for step in (SOLVE, GRADE)} | {"report": {"report.html"}}
    folders = tuple(setting("prefix") + name for name in ("runs/", "trainings/"))
    for where, spec in argo.workflows():
        assert spec["artifactGC"] == {"strategy": "Never"}, where
        assert spec["artifactRepositoryRef"] == {"configMap": "swe-argo-artifacts", "key": "default"}, where
    for where, template in argo.templates():
        artifacts = [item for side in ("inputs", "outputs") for item in template.get(side, {}).get("artifacts", [])]
        for artifact in artifacts:
            assert artifact.keys() <= {"name", "path", "archive", "optional", "s3"}, f"{where}: {artifact}"
            assert artifact["s3"].keys() == {"key"}, f"{where}: {artifact}"
            assert artifact["archive"] == {"none": {}}, f"{where}: {artifact}"
            assert artifact["s3"]["key"].startswith(folders), f"{where}: {artifact}"
        outputs = template.get("outputs", {}).get("artifacts", [])
        files = {artifact["path"].rsplit("/", 1)[1] for artifact in outputs if not artifact.get("optional")}
        assert files == required.get(template["name"], set()), where
