"""What a person may set: every value documented, known to the schema, and refused where it is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts.chart import CASES, CHART, helm, try_render
from tests.paths import ROOT

PAGES = ["README.md", "charts/swe-argo/README.md", "charts/swe-argo/values.yaml"]
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TABLE = '{{ template "chart.valuesTable" . }}'
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("page", PAGES)
def test_steps_image_name_matches_build(page: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IMAGE_")}
    environment["IMAGE_REGISTRY"] = "registry.example.com/team"
    words = ["bash", "images/build", "names", "steps"]
    result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    repository, _, tag = result.stdout.strip().rpartition(":")
    assert repository in (ROOT / page).read_text()
    assert f"appVersion: {tag}\n" in (CHART / "Chart.yaml").read_text()


def test_chart_readme_matches_values() -> None:
    command = [sys.executable, str(ROOT / "charts" / "readme.py"), str(CHART), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_readme_needs_documented_values(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("one:\n  # -- Said.\n  said: 1\n  silent: 2\n")
    (tmp_path / "README.md.gotmpl").write_text(TABLE)
    command = [sys.executable, str(ROOT / "charts" / "readme.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "one.silent has no" in result.stderr


def test_readme_table_equals_helm_docs(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(
        '# -- First\n# and `more`.\na: "<b>&"\nb:\n  # -- Half.\n  half: 1.5\n  # -- Nothing.\n  none: null\n'
        '# -- Any.\nc: {z: 1, y: [true, "ä"]}\n'
    )
    (tmp_path / "README.md.gotmpl").write_text(f"Before\n{TABLE}\nafter\n")
    (tmp_path / "arguments.yaml").write_text("{}")
    subprocess.run([sys.executable, str(ROOT / "charts" / "readme.py"), str(tmp_path)], check=True)
    assert (tmp_path / "README.md").read_text().splitlines() == [  # helm-docs 1.14.2, --sort-values-order file
        "Before",
        "| Key | Type | Default | Description |",
        "|-----|------|---------|-------------|",
        '| a | string | `"<b>&"` | First and `more`. |',
        "| b.half | float | `1.5` | Half. |",
        "| b.none | string | `nil` | Nothing. |",
        '| c | object | `{"y":[true,"ä"],"z":1}` | Any. |',
        "after",
    ]


def test_schema_covers_the_values() -> None:
    assert _unlike(SCHEMA, DEFAULTS, "") == []


def _unlike(schema: dict[str, Any], default: object, path: str) -> list[str]:
    """Where a mapping of fixed keys in the schema differs from the defaults, or lets unknown keys in."""
    properties = schema.get("properties")
    if properties is None:
        return []
    assert isinstance(default, dict), path
    differences = [] if schema.get("additionalProperties") is False else [f"{path}: unknown keys are let in"]
    differences += [f"{path}.{key}" for key in (set(properties) ^ set(default)) - {"global"}]
    for key in set(properties) & set(default):
        differences += _unlike(properties[key], default[key], f"{path}.{key}")
    return differences


def test_schema_checks_every_type(tmp_path: Path) -> None:
    """A list of lists, which none is, in the place of each at once: Helm names them all."""
    wrong, paths = _wrong(DEFAULTS, "")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(wrong))
    result = try_render("--values", tmp_path / "values.yaml")
    assert result.returncode != 0
    assert len(paths) > 70
    assert [path for path in paths if f"at '{path}" not in result.stderr] == []


def _wrong(default: object, path: str) -> tuple[object, list[str]]:
    """The same mappings with a list of lists for every other value, and where these are."""
    if not isinstance(default, dict) or not default:
        return [[]], [path]
    below = {key: _wrong(value, f"{path}/{key}") for key, value in default.items()}
    return {key: wrong for key, (wrong, _) in below.items()}, [item for _, paths in below.values() for item in paths]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_helm_lint_passes_every_case(case: Path) -> None:
    result = subprocess.run(
        [helm(), "lint", "--strict", str(CHART), "--values", str(case)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("flag", "about"),
    [
        ("sandbox.resources.limits.gpu=1", "gpu"),
        ("sandbox.resources.limits.memory=lots", "/sandbox/resources/limits/memory"),
        ("sandbox.resources.requests.cpu=-1", "/sandbox/resources/requests/cpu"),
        ("sandbox.tolerations[0].effect=Sometimes", "/sandbox/tolerations/0/effect"),
        ("sandbox.imagePrefixes[0]=it's/", "/sandbox/imagePrefixes/0"),
        ("sandbox.nameservers[0]=dns.example.org", "/sandbox/nameservers/0"),
        ("sandbox.pendingSeconds=0", "/sandbox/pendingSeconds"),
        ("serviceAccount.name=", "/serviceAccount/name"),
        ("grading.denyCIDRs={10.0.0.0/8}", "169.254.0.0/16"),
        ("grading.denyCIDRs[0]=10.0.0.0/33", "/grading/denyCIDRs/0"),
        ("grading.allowCIDRs={169.254.169.254/32}", "/grading/allowCIDRs/0"),
        ("grading.allowCIDRs={0.0.0.0/0}", "/grading/allowCIDRs/0"),
        ("quota.hard.gpus=1", "gpus"),
        ("aws.s3.bucket=s3://runs/a", "/aws/s3/bucket"),
        ("aws.s3.endpoint=ftp://a", "/aws/s3/endpoint"),
        ("aws.region=US East", "/aws/region"),
        ("image.repository=localhost/a:v1", "/image/repository"),
        ("image.tag=a b", "/image/tag"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("submitters[0].kind=Robot", "/submitters/0"),
        ("credentials.existingSecret=TINKER_API_KEY", "/credentials/existingSecret"),
        ("hub.endpoint=huggingface.co", "/hub/endpoint"),
        ("training.existingSecret=", "/training/existingSecret"),
        ("proxy.baseModel=a b", "/proxy/baseModel"),
        ("proxy.name=openai/tinker", "/proxy/name"),
        ("proxy.tokenizer=./tokenizer/folder", "/proxy/tokenizer"),
        ("proxy.weights=000001", "/proxy/weights"),
        ("proxy.training=trainings/one", "/proxy/training"),
        ("proxy.refreshSeconds=0", "/proxy/refreshSeconds"),
        ("proxy.toolFormat=xml", "/proxy/toolFormat"),
        ("proxy.tinkerURL=tinker", "/proxy/tinkerURL"),
        ("proxy.replicas=0", "/proxy/replicas"),
        ("verl.name=One", "/verl/name"),
        ("verl.kind=RayCluster", "/verl/kind"),
        ("verl.nodes=0", "/verl/nodes"),
        ("verl.gpuResource=gpu", "/verl/gpuResource"),
        ("verl.overrides[0]=it's=1", "/verl/overrides/0"),
        ("verl.overrides[0]=trainer.nnodes", "/verl/overrides/0"),
        ("verl.existingClaim=/trainings", "/verl/existingClaim"),
        ("limits.units=0", "/limits/units"),
        ("limits.shards=2", "shards"),
        ("retries=-1", "/retries"),
        ("resourceFactor=0", "/resourceFactor"),
        ("resourceFactor=0.0", "/resourceFactor"),
        ("resourceFactor=double", "/resourceFactor"),
        ("steps.resources.requests.cpu=fast", "/steps/resources/requests/cpu"),
        ("network.apiServerCIDRs={10.0.0.1}", "/network/apiServerCIDRs/0"),
        ("network.allow[0].cidr=10.0.0.0/8", "ports"),
        ("network.allow[0].ports={8000}", "/network/allow/0"),
        ("network.allow[0].cidr=10.0.0.0/8,network.allow[0].namespace=a,network.allow[0].ports={80}", "oneOf"),
        ("network.allow[0].cidr=10.0.0.0/8,network.allow[0].podLabels.a=b,network.allow[0].ports={80}", "podLabels"),
        ("nightly.schedules={at night}", "/nightly/schedules/0"),
        ("nightly.schedules=null", "schedules"),
        ("nightly.timezone=GMT+1:00", "/nightly/timezone"),
        ("nightly.attempts=0", "/nightly/attempts"),
        ("nightly.k=all", "/nightly/k"),
    ],
)
def test_schema_names_invalid_value(flag: str, about: str) -> None:
    result = try_render("--set", flag)
    assert result.returncode != 0
    assert about in result.stderr
    assert "schema" in result.stderr


@pytest.mark.parametrize(
    "flag",
    [
        "sandbox.resources.limits.cpu=4",
        "sandbox.nodeSelector=null",
        "sandbox.tolerations=null",
        "global.a=1",
        "argo.create=null",
        "steps.tolerations=null",
        "control.resources=null",
        "imagePullSecrets={a}",
        "network.allow[0].cidr=10.0.0.0/8,network.allow[0].ports={80,8000-8010}",
        "network.allow[0].namespace=models,network.allow[0].ports={8000}",
        "network.allow[0].namespace=models,network.allow[0].podLabels.app=vllm,network.allow[0].ports={8000}",
        "proxy.context=null",
        "proxy.resources=null",
        "nightly.k=5",
        "nightly.k=",
        "nightly.schedules={@daily}",
        "nightly.timezone=America/Argentina/Buenos_Aires",
        "resourceFactor=1.5",
    ],
)
def test_schema_accepts_common_flags(flag: str) -> None:
    result = try_render("--set", flag)
    assert result.returncode == 0, result.stderr
