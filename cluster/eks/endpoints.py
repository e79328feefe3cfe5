#!/usr/bin/env python3
"""The ways from a cluster's nodes to S3 and ECR that stay in its VPC, and need no NAT gateway, which bills by the byte.

  endpoints.py up --cluster NAME --region REGION      make what is missing
  endpoints.py down --cluster NAME --region REGION    delete what `up` made: they would keep the VPC from being deleted

eksctl makes endpoints for clusters without any way out only. Credentials are boto3's.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

WRONG, FAILED = 64, 1
OWNER = "swe-argo/cluster"
GATEWAYS = ("s3",)
INTERFACES = ("ecr.api", "ecr.dkr")


class WrongError(Exception):
    """A setting that cannot be: exit code 64."""


@dataclass(frozen=True)
class Network:
    """Ids for creating endpoints, with one subnet of nodes per zone."""

    vpc: str
    subnets: list[str]
    routes: list[str]
    group: str


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def network(eks: Any, ec2: Any, cluster: str) -> Network:
    """Return the network of a cluster of eksctl. Raises WrongError without the cluster or without private subnets."""
    try:
        config = eks.describe_cluster(name=cluster)["cluster"]["resourcesVpcConfig"]
    except eks.exceptions.ResourceNotFoundException:
        raise WrongError(f"no cluster {cluster} in {eks.meta.region_name}: run make cluster-up") from None
    subnets = ec2.describe_subnets(
        Filters=[
            {"Name": "vpc-id", "Values": [config["vpcId"]]},
            # eksctl's mark of the subnets whose nodes have no public address
            {"Name": "tag:kubernetes.io/role/internal-elb", "Values": ["1"]},
        ]
    )["Subnets"]
    if not subnets:
        raise WrongError(
            f"no subnet of {config['vpcId']} has the tag kubernetes.io/role/internal-elb=1, which marks private subnets"
        )
    zones = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
    tables = ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": [subnet["SubnetId"] for subnet in subnets]}]
    )["RouteTables"]
    return Network(
        vpc=config["vpcId"],
        subnets=sorted(zones.values()),
        routes=sorted(table["RouteTableId"] for table in tables),
        # All nodes are members, and the group allows traffic between its members.
        group=config["clusterSecurityGroupId"],
    )


def up(eks: Any, ec2: Any, cluster: str) -> None:
    """Create the missing endpoints of the VPC."""
    region, vpc_network = eks.meta.region_name, network(eks, ec2, cluster)
    existing = {endpoint["ServiceName"] for endpoint in _endpoints(ec2, {"vpc-id": vpc_network.vpc})}
    tags = [{"ResourceType": "vpc-endpoint", "Tags": [{"Key": OWNER, "Value": cluster}]}]
    for short in (*GATEWAYS, *INTERFACES):
        service = f"com.amazonaws.{region}.{short}"
        if service in existing:
            say(f"exists  {service} in {vpc_network.vpc}")
            continue
        if short in GATEWAYS:
            options: dict[str, Any] = {"VpcEndpointType": "Gateway", "RouteTableIds": vpc_network.routes}
        else:
            options = {
                "VpcEndpointType": "Interface",
                "SubnetIds": vpc_network.subnets,
                "SecurityGroupIds": [vpc_network.group],
                "PrivateDnsEnabled": True,
            }
        ec2.create_vpc_endpoint(VpcId=vpc_network.vpc, ServiceName=service, TagSpecifications=tags, **options)
        say(f"created {service} in {vpc_network.vpc}")


def down(ec2: Any, cluster: str, *, patience_s: float = 600, pause_s: float = 5) -> None:
    """Delete the endpoints that ``up`` created, and wait for their deletion."""
    ids = [endpoint["VpcEndpointId"] for endpoint in _endpoints(ec2, {f"tag:{OWNER}": cluster})]
    if not ids:
        say(f"no endpoints of cluster {cluster}")
        return
    failed = ec2.delete_vpc_endpoints(VpcEndpointIds=ids)["Unsuccessful"]
    if failed:
        raise WrongError(f"{failed[0]['ResourceId']} cannot be deleted: {failed[0]['Error']['Message']}")
    until = time.monotonic() + patience_s
    while remaining := _endpoints(ec2, {f"tag:{OWNER}": cluster}):
        if time.monotonic() > until:
            raise WrongError(
                f"{remaining[0]['VpcEndpointId']} is still {remaining[0]['State']} after {patience_s:.0f} s"
            )
        time.sleep(pause_s)
    say(f"deleted {', '.join(ids)}")


def _endpoints(ec2: Any, filters: dict[str, str]) -> list[Any]:
    request_filters = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    pages = ec2.get_paginator("describe_vpc_endpoints").paginate(Filters=request_filters)
    # One that is gone is told of for a while.
    return [endpoint for page in pages for endpoint in page["VpcEndpoints"] if endpoint["State"].lower() != "deleted"]


def main() -> int:
    """One line for what went wrong: 64 for a wrong setting, 1 where AWS said no."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["up", "down"])
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--region", required=True)
    options = parser.parse_args()
    import boto3

    try:
        session = boto3.session.Session(region_name=options.region)
        eks, ec2 = session.client("eks"), session.client("ec2")
        if options.verb == "up":
            up(eks, ec2, options.cluster)
        else:
            down(ec2, options.cluster)
    except WrongError as error:
        sys.stderr.write(f"cluster/eks/endpoints.py: {error}\n")
        return WRONG
    except Exception as error:
        if not type(error).__module__.startswith("botocore"):
            raise
        sys.stderr.write(f"cluster/eks/endpoints.py: {error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
