"""What the pods of a run are: which image, with which rights, where, and what of them is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator

from swe_argo.steps.contracts.chain import GRADE, SOLVE
from tests.workflows.pipeline.rendered import EVALUATE, SHARD, Manifests, holds, tables, texts

SANDBOXES = ("solve", "grade")
KINDS = ("step", "control")
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
"""Step -> the account it runs as, and whether it speaks to the API. Argo's executor does for what
makes or changes Workflows."""
OF_IMAGES = {"learn": "training-image"}
"""Step -> the setting that names its image, where that is not the one of all."""
STAYS = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def test_steps_know_their_pod(argo: Manifests) -> None:
    expected = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}

    def faults(argo: Manifests) -> Iterator[str]:
        for where, item in argo.templates():
            if item.get("daemon") or item.get("sidecars"):
                yield f"{where} stays when its work is done"
        for where, item in argo.containers():
            variables = {
                variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                for variable in item["container"]["env"]
            }
            yield from (f"{where}: {name}" for name, field in expected.items() if variables.get(name) != field)
        for name in SANDBOXES:
            args = argo.template(name)["container"]["args"]
            if "--try=$(POD_UID)" not in args:
                yield f"{name}: a sandbox is named after its try"
            if not any("retries" in text and "lastRetry.exitCode" in text for text in texts(args)):
                yield f"{name}: a sandbox that ran out gets no more"
        store = f"--store=s3://{argo.setting('bucket')}/{argo.setting('prefix')}"
        if not {store, "--kept-as=$(POD_NAME)"} <= {*argo.template("solve")["container"]["args"]}:
            yield "solve: its answers are lost with its pod, or are not found where its failure lies"
        secrets = [item.get("secretRef", {}).get("name") for item in argo.template("solve")["container"]["envFrom"]]
        if argo.setting("s3-secret") not in secrets:
            yield "solve: it cannot keep its answers where the bucket has keys"

    holds(
        argo,
        faults,
        lambda m: m.template("grade").update(daemon=True),
        lambda m: m.template("solve")["container"]["env"].pop(1),
        lambda m: m.template("grade")["container"]["args"].__setitem__(-1, "--resource-factor=1.0"),
        lambda m: m.template("grade")["container"]["args"].__setitem__(3, "--try=0"),
        lambda m: m.template("solve")["container"]["args"].pop(-1),
        lambda m: m.template("solve")["container"]["envFrom"].pop(0),
        lambda m: m.template("solve")["container"]["args"].__setitem__(-2, "--store=elsewhere"),
    )


def test_containers_use_chart_image(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, template in argo.containers():
            container = template["container"]
            image = argo.setting(OF_IMAGES.get(template["name"], "image"))
            if container.get("image") != image or not container.get("command"):
                yield f"{where}: {container.get('image')} {container.get('command')}"
            amounts = container.get("resources", {})
            if amounts.get("requests", {}).keys() != {"cpu", "memory"} or "memory" not in amounts.get("limits", {}):
                yield f"{where}: {amounts}"
        if argo.chart:
            image = argo.chart.one("ConfigMap", "swe-argo-settings")["data"]["image"]
            if image != "registry.example/swe-argo:1.2.3":
                yield f"image {image}"

    holds(
        argo,
        faults,
        lambda m: m.template("list")["container"].pop("command"),
        lambda m: m.template("list")["container"].update(image="busybox:latest"),
        lambda m: m.template("solve")["container"]["resources"].pop("limits"),
        lambda m: m.template("solve")["container"]["resources"]["requests"].pop("cpu"),
    )


def test_only_api_callers_have_tokens(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            if spec.get("automountServiceAccountToken") is not False:
                yield f"{where}: tokens for everyone"
            if spec.get("executor") != {"serviceAccountName": "swe-argo-executor"}:
                yield f"{where}: the executor is {spec.get('executor')}"
            if spec.get("serviceAccountName") != "swe-argo-steps":
                yield f"{where}: {spec.get('serviceAccountName')}"
        accounts = {
            item["name"]: (item.get("serviceAccountName"), item.get("automountServiceAccountToken"))
            for _, item in argo.pods()
        }
        yield from (f"{name}: {accounts.get(name)}" for name, right in ACCOUNTS.items() if accounts.get(name) != right)
        yield from (f"{name} is new: say here what it may" for name in accounts.keys() - ACCOUNTS.keys())
        executors = {item["name"]: item["executor"] for _, item in argo.templates() if "executor" in item}
        if executors != {item: {"serviceAccountName": of} for item, (of, token) in ACCOUNTS.items() if token is None}:
            yield f"executors of their own: {executors}"
        if argo.chart:
            account_names = argo.chart.names("ServiceAccount")
            yield from (f"no account {account}" for account, _ in ACCOUNTS.values() if account not in account_names)

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).update(automountServiceAccountToken=True),
        lambda m: m.spec(EVALUATE).pop("executor"),
        lambda m: m.template("solve").update(executor={"serviceAccountName": "swe-argo-children"}),
        lambda m: m.template("report").update(automountServiceAccountToken=True),
        lambda m: m.template("finalize").update(serviceAccountName="default"),
        lambda m: m.spec(SHARD)["templates"].append({"name": "more", "container": {}}),
    )


def test_pods_have_no_root(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            pod = spec.get("securityContext", {})
            if pod.get("runAsNonRoot") is not True or pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
                yield f"{where}: {pod}"
            if spec.get("hostNetwork") or any("hostPath" in table for _, table in tables(spec)):
                yield f"{where} has something of its node"
        for where, template in argo.containers():
            own = template["container"].get("securityContext", {})
            if own.get("allowPrivilegeEscalation") is not False or own.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{where}: {own}"
            if own.get("readOnlyRootFilesystem") is not True or own.get("privileged"):
                yield f"{where}: {own}"
            if "securityContext" in template:
                yield f"{where}: a pod of its own kind"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD)["securityContext"].pop("runAsNonRoot"),
        lambda m: m.spec(SHARD)["securityContext"].pop("seccompProfile"),
        lambda m: m.spec(SHARD)["volumes"].append({"name": "node", "hostPath": {"path": "/"}}),
        lambda m: m.spec(EVALUATE).update(hostNetwork=True),
        lambda m: m.template("solve")["container"]["securityContext"].pop("capabilities"),
        lambda m: m.template("solve")["container"]["securityContext"].update(allowPrivilegeEscalation=True),
        lambda m: m.template("solve").update(securityContext={"runAsUser": 0}),
    )


def test_pods_follow_chart_scheduling(argo: Manifests) -> None:
    def faults(argo: Manifests) -> Iterator[str]:
        for where, entry in argo.pods():
            meta = entry.get("metadata", {})
            if {name: meta.get("annotations", {}).get(name) for name in STAYS} != STAYS:
                yield f"{where}: {meta.get('annotations')}"
            kind = "step" if entry["name"] in SANDBOXES else "control" if "container" in entry else "waiter"
            patch = f"{kind}-pod"
            if entry.get("podSpecPatch") != argo.setting(patch):
                yield f"{where}: {entry.get('podSpecPatch')}"
            if meta.get("labels", {}).keys() != {"swe-argo/step", "swe-argo/run"} or (
                meta["labels"]["swe-argo/step"] != entry["name"]
            ):
                yield f"{where}: {meta.get('labels')}"
        if argo.chart:
            settings = argo.chart.one("ConfigMap", "swe-argo-settings")["data"]
            classes = {entry["metadata"]["name"]: entry["value"] for entry in argo.chart.all("PriorityClass")}
            step, control = (classes.get(json.loads(settings[f"{entry}-pod"])["priorityClassName"]) for entry in KINDS)
            if step is None or control is None or not step < control:
                yield f"control pods wait behind steps: {step}, {control} of {classes}"

    holds(
        argo,
        faults,
        lambda m: m.template("grade")["metadata"]["annotations"].popitem(),
        lambda m: m.template("child").pop("podSpecPatch"),
        lambda m: m.template("solve").update(podSpecPatch=m.setting("control-pod")),
        lambda m: m.template("solve")["metadata"]["labels"].update({"swe-argo/role": "solve"}),
    )


def test_artifacts_use_store_keys(argo: Manifests) -> None:
    """Required is what a step gives whenever it ends well; what is there in some cases may be missing."""
    required = {step.name: {kind.file for kind in step.gives} for step in (SOLVE, GRADE)}
    required["report"] = {"report.html"}

    def faults(argo: Manifests) -> Iterator[str]:
        for where, spec in argo.workflows():
            if spec.get("artifactGC") != {"strategy": "Never"}:
                yield f"{where}: {spec.get('artifactGC')}"
            if spec.get("artifactRepositoryRef") != {"configMap": "swe-argo-artifacts", "key": "default"}:
                yield f"{where}: {spec.get('artifactRepositoryRef')}"
        for where, template in argo.templates():
            for side in ("inputs", "outputs"):
                for artifact in template.get(side, {}).get("artifacts", []):
                    place = f"{where}/{side}/{artifact['name']}"
                    if artifact.keys() - {"name", "path", "archive", "optional", "s3"}:
                        yield f"{place}: {artifact}"
                    if artifact.get("s3", {}).keys() != {"key"} or artifact.get("archive") != {"none": {}}:
                        yield f"{place}: {artifact}"
                    where_it_is = tuple(argo.setting("prefix") + name for name in ("runs/", "trainings/"))
                    if not artifact.get("s3", {}).get("key", "").startswith(where_it_is):
                        yield f"{place}: {artifact.get('s3')}"
            outputs = template.get("outputs", {}).get("artifacts", [])
            files = {artifact["path"].rsplit("/", 1)[1] for artifact in outputs if not artifact.get("optional")}
            if files != required.get(template["name"], set()):
                yield f"{where}: without {sorted(files ^ required.get(template['name'], set()))}"

    holds(
        argo,
        faults,
        lambda m: m.spec(SHARD).update(artifactGC={"strategy": "OnWorkflowDeletion"}),
        lambda m: m.spec(SHARD).pop("artifactRepositoryRef"),
        lambda m: m.template("solve")["outputs"]["artifacts"][0].update(optional=True),
        lambda m: m.template("solve")["outputs"]["artifacts"][0].pop("archive"),
        lambda m: m.template("solve")["outputs"]["artifacts"][0]["s3"].update(bucket="mine"),
        lambda m: m.template("solve")["outputs"]["artifacts"][0]["s3"].update(key="{{workflow.name}}/x"),
        lambda m: m.template("grade")["outputs"]["artifacts"][0].pop("optional"),
    )
