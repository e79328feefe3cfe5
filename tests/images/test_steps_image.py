"""The image of the steps: what is in it, what is not, and that it runs as any user on a read-only root."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from swe_argo.steps.datasets.mini.forms import instance_ids
from tests.images.conftest import DEBIAN, SLIM, Shop
from tests.images.index import PASSWORD
from tests.paths import DATA, ROOT, needs_data
from tests.steps.datasets.hub_server import Hub, Repo, serving
from tests.steps.datasets.sample_rows import row

pytestmark = [pytest.mark.images, pytest.mark.slow, pytest.mark.timeout(900)]

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
SIZE_MB = 405
"""Measured: 399, of which the base 123, pyarrow 99, pandas and numpy (for datasets) 69, what E2B and AGS need 24,
tree-sitter with its grammars 18."""


def test_steps_image_runs_every_step(shop: Shop, steps_image: str) -> None:
    words = (
        "for step in plan solve grade report compare finalize; do python -m swe_argo.steps.$step --help || exit; done"
    )
    output = shop.inside(steps_image, "sh", "-c", words)
    assert output.count("usage: python -m swe_argo.steps.") == 6


def test_steps_image_is_not_root(shop: Shop, steps_image: str) -> None:
    image = shop.client.images.get(steps_image)
    user = image.attrs["Config"]["User"].split(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    assert image.labels["org.opencontainers.image.version"] == VERSION
    assert image.labels["org.opencontainers.image.revision"]


def test_steps_image_has_no_build_tools(shop: Shop, steps_image: str) -> None:
    modules = ["hera", "workflows", "tests", "pip", "setuptools", "ensurepip", "docker", "litellm"]
    code = f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])"
    assert shop.inside(steps_image, "python", "-c", code).strip() == "[]"
    programs = shop.inside(
        steps_image, "sh", "-c", "for each in pip pip3 uv cc gcc make hera; do command -v $each; done; :"
    )
    assert programs == ""


def test_steps_image_has_only_steps(shop: Shop, steps_image: str) -> None:
    names = shop.inside(steps_image, "ls", "-A", "/opt/swe-argo").split()
    assert names == ["swe_argo", f"swe_argo-{VERSION}.dist-info"]
    package = ["__init__.py", "__pycache__", "steps", "templates"]
    assert shop.inside(steps_image, "ls", "-A", "/opt/swe-argo/swe_argo").split() == package


def test_steps_image_keeps_mini_digests(shop: Shop, steps_image: str) -> None:
    """Compiled files among them would be other repositories, and other digests."""
    code = "import sys; from swe_argo.steps.datasets import mini; print(*map(mini.digest, sys.argv[1:]))"
    from swe_argo.steps.datasets.mini import digest

    inside = shop.inside(steps_image, "python", "-c", code, *instance_ids()).split()
    assert inside == [digest(name) for name in instance_ids()]


def test_steps_image_has_no_password(shop: Shop, steps_image: str) -> None:
    image = shop.client.images.get(steps_image)
    assert PASSWORD not in json.dumps([image.attrs, image.history()])
    search = f"grep -rlF {PASSWORD} /opt /etc /root /usr/local /var/lib /home || :"
    assert (
        shop.client.containers.run(steps_image, ["sh", "-c", search], user="0", network_mode="none", remove=True) == b""
    )


@needs_data
def test_steps_image_grades_saved_log(shop: Shop, steps_image: str, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(DATA / "swebench" / "harness_logs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    code = """
import json
import tomllib
from pathlib import Path
from swe_argo.steps.datasets.load import load
from swe_argo.steps.grading.saved_logs import read_corpus
rows = {row["instance_id"]: row for row in load("/rows/verified_test.parquet", "test").rows}
print(json.dumps({log.parent.name: read.graded.report for log, read in read_corpus(rows, Path("/logs"))}))
"""
    volumes = {str(tmp_path / "verified"): "/logs", str(DATA / "swebench"): "/rows"}
    reports = json.loads(shop.inside(steps_image, "python", "-c", code, volumes=volumes))
    assert len(reports) == 87
    for name, report in reports.items():
        assert report[name] == json.loads((tmp_path / "verified" / name / "expected_5.0.2.json").read_text())


def test_steps_image_loads_extras(shop: Shop, steps_image: str) -> None:
    """Files were taken out of these packages."""
    code = """
import importlib, pkgutil
import boto3, datasets, jinja2, pandas, pyarrow as pa, pyarrow.parquet as pq
for room in ("kubernetes", "e2b", "ags", "envd"):
    found = importlib.import_module(f"swe_argo.steps.sandbox.{room}")
    for each in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
        importlib.import_module(each.name)
[boto3.client(name, region_name="eu-central-1") for name in ("s3", "sts", "sso", "sso-oidc")]
pq.write_table(pa.table({"a": [1]}), "/tmp/a.parquet", compression="zstd")
from swe_argo.steps.datasets.files import read_file
from pathlib import Path
print([found.value for found in read_file(Path("/tmp/a.parquet"))])
print(datasets.load_dataset("parquet", data_files="/tmp/a.parquet", split="train")[0])
"""
    lines = shop.inside(steps_image, "python", "-W", "ignore", "-c", code).splitlines()
    assert lines[-2:] == ["[{'a': 1}]", "{'a': 1}"]


def test_steps_image_reads_rows_from_hub(shop: Shop, steps_image: str) -> None:
    """By what is left of the hub's client."""
    rows = {"README.md": b"# Rows", "data/test-00000-of-00001.jsonl": json.dumps(row("a__b-1")).encode()}
    code = 'from swe_argo.steps.datasets.load import load; print(*load("acme/rows", "test").rows[0].values())'
    with serving(Hub({"acme/rows": Repo({"a" * 40: rows}, {"main": "a" * 40})})) as hub:
        environment = {"HF_ENDPOINT": hub.endpoint}
        words = ["python", "-W", "error::ResourceWarning", "-c", code]
        output = shop.inside(steps_image, *words, network_mode="host", environment=environment)
    assert "a__b-1" in output


def test_steps_image_has_tracebacks(shop: Shop, steps_image: str) -> None:
    """The file and the line: packages come without their sources."""
    code = "import traceback, yaml\ntry: yaml.safe_load('[')\nexcept Exception: print(traceback.format_exc())"
    output = shop.inside(steps_image, "python", "-c", code)
    assert re.search(r'File "/opt/venv/lib/python3[.]\d+/site-packages/yaml/parser[.]py", line \d+, in \w+', output)


def test_steps_image_has_prompts(shop: Shop, steps_image: str) -> None:
    code = """
import openai
from swe_argo.steps.agents import scaffold_text
from swe_argo.steps.agents import templates
from swe_argo.steps.agents import mini_swe_agent
from swe_argo.steps.agents.opening import SCAFFOLDS
from swe_argo.steps.contracts.agent_spec import AgentSpec
for name in SCAFFOLDS:
    assert templates.template_source(AgentSpec(name=name)), name
for fn_calling in (True, False):
    assert mini_swe_agent.swebench_config(mini_swe_agent.load(), fn_calling=fn_calling, max_observation=None)["agent"]
with openai.OpenAI(api_key="none", base_url="http://127.0.0.1:9/v1", max_retries=0) as client:
    try:
        client.chat.completions.create(model="m", messages=[])
    except openai.APIConnectionError:
        print("ready")
"""
    assert shop.inside(steps_image, "python", "-W", "error", "-c", code).strip() == "ready"


def test_steps_image_has_gateway(shop: Shop, steps_image: str) -> None:
    """Nothing is built there: there is neither Go nor an index, and no folder to keep it in."""
    code = """
import subprocess
from swe_argo.steps.gateway.binary import find_gateway
from swe_argo.steps.gateway.binary import ARCHITECTURES, is_shipped
from swe_argo.steps.bundles.build import architecture_here
assert is_shipped()
machines = {"amd64": 62, "arm64": 183}
for architecture in ARCHITECTURES:
    program = find_gateway(architecture)
    assert program[:4] == b"\\x7fELF", program[:4]
    assert int.from_bytes(program[18:20], "little") == machines[architecture]
place = f"/opt/swe-argo/swe_argo/steps/gateway/built/gateway-{architecture_here()}"
try_it = f"command -v go; cp {place} /tmp/gateway && chmod +x /tmp/gateway && /tmp/gateway"
print(subprocess.run(["sh", "-c", try_it]).returncode)
"""
    output = shop.inside(
        steps_image, "python", "-c", code, environment={"SWE_ARGO_HOME": "/none"}, tmpfs={"/tmp": "exec"}
    )
    gateway_usage, code_of_it = output.splitlines()
    assert "usage: gateway CONFIG_FILE" in gateway_usage
    assert code_of_it == "1"


def test_steps_image_is_compiled(shop: Shop, steps_image: str) -> None:
    """Nothing is left to compile: `--help` takes 0.16 to 0.22 CPU seconds, and 0.57 where everything is."""
    output = shop.inside(steps_image, "sh", "-c", "python -v -m swe_argo.steps.grade --help 2>&1")
    loaded = re.findall(r"^# code object from '?(\S+\.pyc?)'?$", output, re.MULTILINE)
    assert any("/steps/__pycache__/grade." in name for name in loaded)
    assert [name for name in loaded if name.endswith(".py")] == []


def test_steps_image_size_is_bounded(shop: Shop, steps_image: str) -> None:
    """Counted with a base of Python alone, as python:3.13-slim is one."""
    size = {name: shop.client.images.get(name).attrs["Size"] for name in (steps_image, DEBIAN, SLIM)}
    assert (size[steps_image] - size[DEBIAN] + size[SLIM]) / 1e6 < SIZE_MB
