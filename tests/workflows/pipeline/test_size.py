"""How large Workflow objects become, in bytes of JSON: Argo holds up to 1 MiB before it compresses them."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.paths import DATA, ROOT, needs_data
from tests.workflows.pipeline.rendered import Object, committed
from tests.workflows.pipeline.status import Shard, nodes_of_unit, run_object, shard_object, size

SEEN = json.loads(Path(__file__).with_name("seen.json").read_text("utf-8"))
"""The nodes of one unit, as a real controller wrote them."""
LONGEST = "marshmallow-code__marshmallow-1359"
"""The instance of the longest name in SWE-bench and its relatives (Verified, Lite, Multilingual, Multimodal)."""
LONGER = "marshmallow-code__apispec.8b421526.lm_rewrite__gtxozph0"
"""One of SWE-smith."""
MESSAGE = "main: Error (exit code 75): "
"""What Argo says before it."""
KIB, MIB = 1 << 10, 1 << 20


def units_of_a_shard() -> int:
    args = committed().template("plan")["container"]["args"]
    return int(next(arg for arg in args if arg.startswith("--shard-size=")).partition("=")[2])


@pytest.fixture(scope="module")
def longest_reason(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Characters of the longest reason that a step gives: it becomes part of its node's message."""
    folder = tmp_path_factory.mktemp("reason")
    place = "/".join([str(folder), *["a" * 200] * 8])
    variables = {**os.environ, "SWE_ARGO_REASON": str(folder / "reason")}
    command = [sys.executable, "-m", "swe_argo.steps.grade", "--in", place, "--out", str(folder / "out")]
    result = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, check=False)
    assert result.returncode == 64
    return len((folder / "reason").read_text("utf-8"))


def shape(node: Object) -> tuple[int, ...]:
    """How many files and parameters it carries."""
    sides = [node.get(side, {}) for side in ("inputs", "outputs")]
    return tuple(len(side.get(kind, [])) for side in sides for kind in ("artifacts", "parameters"))


def test_simulated_nodes_have_real_size() -> None:
    shard = Shard("mini__sleep-00002", tries=1, name="run-kplzc-s00000", run="lone-more", prefix="")
    real = {(item["type"], item["templateName"]): item for item in SEEN}
    simulated = {(item["type"], item["templateName"]): item for item in nodes_of_unit(committed(), shard, 0)}
    assert real.keys() == simulated.keys()
    compared = 0
    for kind, node in real.items():
        # What a template takes and gives is its own to change; the fields and the names are Argo's.
        assert node.keys() - {"children"} <= simulated[kind].keys(), kind
        if shape(node) == shape(simulated[kind]):
            compared += 1
            assert size(node) <= size(simulated[kind]) < size(node) * 1.1, kind
    assert compared


def test_retried_shard_fits_uncompressed(longest_reason: int) -> None:
    shard = Shard(LONGEST, units=units_of_a_shard(), message="m" * (longest_reason + len(MESSAGE)))
    assert size(shard_object(committed(), shard)) <= MIB
    assert size(shard_object(committed(), replace(shard, units=2 * shard.units))) > MIB


def test_longest_shard_fits_compressed() -> None:
    """Names of Workflow and run at Kubernetes' limit, the bucket's folder deep, and a whole screen said by each try."""
    shard = Shard(LONGER, units_of_a_shard(), 3, "m" * 1000, name="n" * 63, run="r" * 63, prefix="p" * 100 + "/")
    whole_shard = shard_object(committed(), shard)
    nodes = whole_shard["status"].pop("nodes")
    packed = base64.b64encode(gzip.compress(json.dumps(nodes).encode()))
    assert size(whole_shard) + len(packed) <= MIB / 4


@needs_data
def test_longest_name_is_long_enough() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = sorted((DATA / "swebench").glob("*.parquet"))
    assert files
    for file in files:
        ids = parquet.read_table(file, columns=["instance_id"]).column(0).to_pylist()
        assert max(map(len, ids)) <= len(LONGEST), file.name


def test_large_run_is_a_small_workflow() -> None:
    shards = -(-2294 // units_of_a_shard())
    plain = Shard(LONGER, tries=1)
    assert size(run_object(committed(), shards, plain)) <= 200 * KIB
    # Every pod that waits for a shard lost once: a whole node group was drained.
    assert size(run_object(committed(), shards, Shard(plain.instance, tries=2))) <= 256 * KIB
    assert size(run_object(committed(), 10 * shards, plain)) > 200 * KIB
