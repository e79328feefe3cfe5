from __future__ import annotations

import base64
import gzip
import json

import pytest

from swe_argo.steps.argo.nodes import UnitName, has_begun, nodes, pod_name, pods, unit
from swe_argo.steps.errors import InfraError
from tests.steps.argo.recorded import node, workflow


def test_nodes_are_found_in_the_status_compressed_or_not() -> None:
    whole = workflow("stopped_shard")
    plain = nodes(whole)
    assert len(plain) > 8
    packed = gzip.compress(json.dumps(plain).encode())
    whole["status"] = {"phase": "Failed", "compressedNodes": base64.b64encode(packed).decode()}
    assert nodes(whole) == plain


def test_a_workflow_that_never_began_has_no_nodes() -> None:
    assert nodes(workflow("shard_stopped_while_waiting")) == {}
    assert nodes({"metadata": {"name": "new"}}) == {}


@pytest.mark.parametrize(
    "packed", [b"\x28\xb5\x2f\xfd0000", b"not gzip", gzip.compress(b"{}")[:-9]], ids=["zstd", "text", "cut off"]
)
def test_nodes_packed_otherwise_are_said_to_be_unreadable(packed: bytes) -> None:
    whole = {"metadata": {"name": "run-s00001"}, "status": {"compressedNodes": base64.b64encode(packed).decode()}}
    with pytest.raises(InfraError, match="the nodes of Workflow run-s00001 cannot be read"):
        nodes(whole)


def test_nodes_in_a_database_are_said_to_be_there() -> None:
    whole = {"metadata": {"name": "run-s00001"}, "status": {"offloadNodeStatusVersion": "fnv:1"}}
    with pytest.raises(InfraError, match=r"in Argo's database alone \(nodeStatusOffLoad\)"):
        nodes(whole)


def test_a_pod_is_named_as_argo_names_it() -> None:
    # As kubectl listed them when the Workflow was recorded.
    assert {pod_name(workflow("stopped_shard"), each) for each in pods(workflow("stopped_shard"))} == {
        "rec4-grade-2804048989",
        "rec4-grade-4026342485",
        "rec4-solve-211831872",
        "rec4-solve-278648158",
        "rec4-solve-3085524573",
        "rec4-solve-3721458829",
        "rec4-solve-424381557",
        "rec4-solve-949900013",
    }


def test_a_long_workflow_name_is_cut_in_its_pods_as_argo_does() -> None:
    name = "n" * 250
    found = pod_name({"metadata": {"name": name}}, {"id": f"{name}-123", "name": "x", "templateName": "solve"})
    assert found == "n" * 242 + "-123"
    assert len(found) <= 253


def test_a_node_knows_its_unit_and_whether_it_had_a_place() -> None:
    assert unit(node("oom")) == UnitName("oom", 1)
    assert has_begun(node("oom"))
    assert not has_begun(node("nowhere"))
    assert unit({"inputs": {"parameters": [{"name": "id", "value": "a"}, {"name": "attempt", "value": "x"}]}}) is None
    assert unit({}) is None
