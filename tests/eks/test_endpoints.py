"""A cluster's ways to S3 and ECR inside its VPC."""

from __future__ import annotations

import json
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.eks.cloud import CREDENTIALS, REGION, client
from tests.eks.files import run_python
from tests.s3 import moto

SERVICES = {f"com.amazonaws.{REGION}.{name}" for name in ("s3", "ecr.api", "ecr.dkr")}


@dataclass(frozen=True)
class Cluster:
    """One as eksctl makes it: private and public subnets, each with its routes."""

    endpoint: str
    name: str
    vpc: str
    private: set[str]
    routes: set[str]
    group: str
    ec2: Any

    def run(self, verb: str) -> subprocess.CompletedProcess[str]:
        words = [verb, "--cluster", self.name, "--region", REGION]
        return run_python("endpoints.py", *words, AWS_ENDPOINT_URL=self.endpoint, **CREDENTIALS)

    def endpoints(self) -> list[Any]:
        endpoints = self.ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])["VpcEndpoints"]
        return [endpoint for endpoint in endpoints if endpoint["State"].lower() != "deleted"]


def make_cluster(endpoint: str, name: str, network: dict[str, Any]) -> None:
    """EKS finds out VPC and security group by itself; moto is told, by what a client would not send."""
    scope = f"AWS4-HMAC-SHA256 Credential=x/20260101/{REGION}/eks/aws4_request, SignedHeaders=host, Signature=x"
    body = {"name": name, "roleArn": "arn:aws:iam::123456789012:role/r", "resourcesVpcConfig": network}
    headers = {"Authorization": scope, "Content-Type": "application/json"}
    request = urllib.request.Request(f"{endpoint}/clusters", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    name = f"evals-{uuid.uuid4().hex[:8]}"  # moto's servers share what they hold
    with moto() as endpoint:
        ec2 = client("ec2", endpoint)
        vpc = ec2.create_vpc(CidrBlock="192.168.0.0/16")["Vpc"]["VpcId"]
        subnets: dict[str, set[str]] = {"internal-elb": set(), "elb": set()}
        routes = set()
        for i, (kind, zone) in enumerate((kind, zone) for kind in subnets for zone in "ab"):
            tags = [{"Key": f"kubernetes.io/role/{kind}", "Value": "1"}]
            created = ec2.create_subnet(
                VpcId=vpc,
                CidrBlock=f"192.168.{32 * i}.0/19",
                AvailabilityZone=REGION + zone,
                TagSpecifications=[{"ResourceType": "subnet", "Tags": tags}],
            )["Subnet"]["SubnetId"]
            subnets[kind].add(created)
            table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
            ec2.associate_route_table(RouteTableId=table, SubnetId=created)
            if kind == "internal-elb":
                routes.add(table)
        everywhere = sorted(subnets["internal-elb"] | subnets["elb"])
        group = ec2.create_security_group(GroupName="eks-cluster-sg", Description="x", VpcId=vpc)["GroupId"]
        make_cluster(endpoint, name, {"subnetIds": everywhere, "vpcId": vpc, "clusterSecurityGroupId": group})
        yield Cluster(endpoint, name, vpc, subnets["internal-elb"], routes, group, ec2)
        ec2.close()


def test_endpoints_up_is_idempotent(cluster: Cluster) -> None:
    result = cluster.run("up")
    assert result.returncode == 0, result.stderr
    created = {item["ServiceName"]: item for item in cluster.endpoints()}
    assert set(created) == SERVICES
    gateway = created.pop(f"com.amazonaws.{REGION}.s3")
    assert (gateway["VpcEndpointType"], set(gateway["RouteTableIds"])) == ("Gateway", cluster.routes)
    for interface in created.values():
        assert interface["VpcEndpointType"] == "Interface"
        assert interface["PrivateDnsEnabled"] is True
        assert set(interface["SubnetIds"]) == cluster.private
        assert [item["GroupId"] for item in interface["Groups"]] == [cluster.group]
    before = {endpoint["VpcEndpointId"] for endpoint in cluster.endpoints()}
    assert cluster.run("up").stdout.count("exists ") == 3
    assert {endpoint["VpcEndpointId"] for endpoint in cluster.endpoints()} == before


def test_endpoints_down_keeps_others(cluster: Cluster) -> None:
    theirs = cluster.ec2.create_vpc_endpoint(
        VpcId=cluster.vpc, ServiceName=f"com.amazonaws.{REGION}.dynamodb", VpcEndpointType="Gateway"
    )["VpcEndpoint"]["VpcEndpointId"]
    cluster.run("up")
    result = cluster.run("down")
    assert result.returncode == 0, result.stderr
    assert [endpoint["VpcEndpointId"] for endpoint in cluster.endpoints()] == [theirs]
    assert cluster.run("down").stdout == f"no endpoints of cluster {cluster.name}\n"


def test_missing_cluster_is_named(cluster: Cluster) -> None:
    words = ["up", "--cluster", "nope", "--region", REGION]
    result = run_python("endpoints.py", *words, AWS_ENDPOINT_URL=cluster.endpoint, **CREDENTIALS)
    assert result.returncode == 64
    assert result.stderr == f"cluster/eks/endpoints.py: no cluster nope in {REGION}: run make cluster-up\n"
