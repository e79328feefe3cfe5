from __future__ import annotations

import base64
import gzip
import json

import pytest

from swe_argo.steps.argo.nodes import UnitName, has_begun, nodes, pod_name, pods, unit
from swe_argo.steps.errors import InfraError
from tests.steps.argo.recorded import node, workflow


def test_nodes_are_unpacked() -> None:
    whole = workflow("stopped_shard")
    plain = nodes(whole)
    assert len(plain) > 8
    packed = gzip.compress(json.dumps(plain).encode())
    whole["status"] = {"phase": "Failed", "compressedNodes": base64.b64encode(packed).decode()}
    assert nodes(whole) == plain


def test_unstarted_workflow_has_no_nodes() -> None:
    assert nodes(workflow("shard_stopped_while_waiting")) == {}
    assert nodes({"metadata": {"name": "new"}}) == {}


@pytest.mark.parametrize(
    "packed", [b"\x28\xb5\x2f\xfd0000", b"not gzip", gzip.compress(b"{}")[:-9]], ids=["zstd", "text", "cut off"]
)
def test_unreadable_nodes_raise(packed: bytes) -> None:
    whole = {"metadata": {"name": "run-s00001"}, "status": {"compressedNodes": base64.b64encode(packed).decode()}}
    with pytest.raises(InfraError, match="the nodes of Workflow run-s00001 cannot be read"):
        nodes(whole)


def test_offloaded_nodes_raise() -> None:
    whole = {"metadata": {"name": "run-s00001"}, "status": {"offloadNodeStatusVersion": "fnv:1"}}
    with pytest.raises(InfraError, match=r"only in Argo's database \(nodeStatusOffLoad\)"):
        nodes(whole)


def test_pod_name_equals_that_of_argo() -> None:
    # As kubectl listed them when the Workflow was recorded.
    assert {pod_name(workflow("stopped_shard"), pod) for pod in pods(workflow("stopped_shard"))} == {
        "rec4-grade-2804048989",
        "rec4-grade-4026342485",
        "rec4-solve-211831872",
        "rec4-solve-278648158",
        "rec4-solve-3085524573",
        "rec4-solve-3721458829",
        "rec4-solve-424381557",
        "rec4-solve-949900013",
    }


def test_pod_name_is_shortened() -> None:
    name = "n" * 250
    actual = pod_name({"metadata": {"name": name}}, {"id": f"{name}-123", "name": "x", "templateName": "solve"})
    assert actual == "n" * 242 + "-123"
    assert len(actual) <= 253


def test_node_names_its_unit() -> None:
    assert unit(node("oom")) == UnitName("oom", 1)
    assert has_begun(node("oom"))
    assert not has_begun(node("nowhere"))
    assert unit({"inputs": {"parameters": [{"name": "id", "value": "a"}, {"name": "attempt", "value": "x"}]}}) is None
    assert unit({}) is None
