#!/usr/bin/env python3
"""Makes repositories in Amazon ECR, and a cache of Docker Hub in it. What is there stays, and gets today's settings.

  ecr.py repositories --region REGION [--registry HOST/FOLDER] [--dry-run] NAME...
  ecr.py cache --region REGION --prefix FOLDER --secret ARN [--dry-run]

Credentials are boto3's: environment, profile, single sign-on. A dry run asks nobody.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any

WRONG, FAILED = 64, 1
FOLDER = "swe-argo"
REGISTRY = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?:/(?P<folder>.+))?"
)
SECRET = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:ecr-pullthroughcache/.+")
UPSTREAM = "registry-1.docker.io"
# An image that lost its tag to a newer build is wanted by nobody once the runs of that day are over.
LIFECYCLE = {
    "rules": [
        {
            "rulePriority": 1,
            "description": "images replaced by newer images",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": 14,
            },
            "action": {"type": "expire"},
        }
    ]
}
SCAN = {"scanOnPush": True}


class WrongError(Exception):
    """A setting that cannot be: exit code 64."""


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def folder_of(registry: str, region: str) -> tuple[str | None, str]:
    """(account or None, folder) of HOST/FOLDER. Raises WrongError if it is no ECR registry of this region."""
    if not registry:
        return None, FOLDER
    match = REGISTRY.fullmatch(registry.rstrip("/"))
    if not match:
        raise WrongError(f"{registry} is not an Amazon ECR registry: ACCOUNT.dkr.ecr.REGION.amazonaws.com/FOLDER")
    if match["region"] != region:
        raise WrongError(f"{registry} is in {match['region']}, but AWS_REGION is {region}: change one of them")
    return match["account"], match["folder"] or ""


def make_repositories(ecr: Any, account: str | None, names: list[str]) -> list[str]:
    """Create missing repositories and update scan and lifecycle of all. Return their URIs.

    With ``account`` None it is the caller's account.
    """
    registry = {"registryId": account} if account else {}
    uris = []
    for name in names:
        try:
            created = ecr.create_repository(repositoryName=name, imageScanningConfiguration=SCAN, **registry)
            uri = created["repository"]["repositoryUri"]
            say(f"created {uri}")
        except ecr.exceptions.RepositoryAlreadyExistsException:
            uri = ecr.describe_repositories(repositoryNames=[name], **registry)["repositories"][0]["repositoryUri"]
            ecr.put_image_scanning_configuration(repositoryName=name, imageScanningConfiguration=SCAN, **registry)
            say(f"exists  {uri}")
        ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=json.dumps(LIFECYCLE), **registry)
        uris.append(uri)
    return uris


def make_cache(ecr: Any, prefix: str, secret: str) -> str:
    """Cache Docker Hub's NAME as ``HOST/prefix/NAME``, with the account in ``secret``. Return HOST/prefix.

    The first pull creates each repository from the template.
    """
    rule = {"ecrRepositoryPrefix": prefix, "credentialArn": secret}
    try:
        response = ecr.create_pull_through_cache_rule(
            upstreamRegistryUrl=UPSTREAM, upstreamRegistry="docker-hub", **rule
        )
        say(f"created cache {prefix} of {UPSTREAM}")
    except ecr.exceptions.PullThroughCacheRuleAlreadyExistsException:
        (rule_before,) = ecr.describe_pull_through_cache_rules(ecrRepositoryPrefixes=[prefix])["pullThroughCacheRules"]
        if rule_before["upstreamRegistryUrl"] != UPSTREAM:
            upstream = rule_before["upstreamRegistryUrl"]
            raise WrongError(
                f"the cache {prefix} belongs to {upstream}: name another folder in PULL_THROUGH_PREFIX"
            ) from None
        response = ecr.update_pull_through_cache_rule(**rule)
        say(f"exists  cache {prefix} of {UPSTREAM}")
    template = {
        "prefix": prefix,
        "description": "cached images of the benchmark",
        "appliedFor": ["PULL_THROUGH_CACHE"],
        "lifecyclePolicy": json.dumps(LIFECYCLE),
    }
    try:
        ecr.create_repository_creation_template(**template)
    except ecr.exceptions.TemplateAlreadyExistsException:
        ecr.update_repository_creation_template(**template)
    return f"{response['registryId']}.dkr.ecr.{ecr.meta.region_name}.amazonaws.com/{prefix}"


def repositories(options: argparse.Namespace) -> None:
    """Run the command of this name."""
    account, folder = folder_of(options.registry, options.region)
    names = [f"{folder}/{name}" if folder else name for name in options.names]
    if options.dry_run:
        for name in names:
            say(
                f"would create repository {name} in {options.region} "
                "(scan on push, untagged images expire after 14 days)"
            )
        return
    uris = make_repositories(_client(options.region), account, names)
    host = uris[0].partition("/")[0]
    say(f"push images to it: export IMAGE_REGISTRY={host}/{folder}".rstrip("/"))
    sign_in = f"docker login --username AWS --password-stdin {host}"
    say(f"sign in to push: aws ecr get-login-password --region {options.region} | {sign_in}")


def cache(options: argparse.Namespace) -> None:
    """Run the command of this name."""
    if not SECRET.fullmatch(options.secret):
        raise WrongError(
            "DOCKER_HUB_SECRET is not an ARN of a Secrets Manager secret whose name begins with ecr-pullthroughcache/, "
            "as ECR requires, with the keys username and accessToken"
        )
    if options.dry_run:
        say(f"would create cache {options.prefix} of {UPSTREAM} in {options.region}, and a template for repositories")
        return
    address = make_cache(_client(options.region), options.prefix, options.secret)
    say(f"use it in runs: export SANDBOX_REGISTRY={address}")


def _client(region: str) -> Any:
    import boto3

    return boto3.session.Session().client("ecr", region_name=region)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="repositories|cache")
    for command in (repositories, cache):
        one = commands.add_parser(command.__name__)
        one.set_defaults(command=command)
        one.add_argument("--region", required=True)
        one.add_argument("--dry-run", action="store_true")
        if command is repositories:
            one.add_argument("--registry", default="")
            one.add_argument("names", nargs="+")
        else:
            one.add_argument("--prefix", required=True)
            one.add_argument("--secret", required=True)
    return parser.parse_args()


def main() -> int:
    """One line for what went wrong: 64 for a wrong setting, 1 where AWS said no."""
    options = _arguments()
    try:
        options.command(options)
    except WrongError as error:
        sys.stderr.write(f"cluster/eks/ecr.py: {error}\n")
        return WRONG
    except Exception as error:
        if not type(error).__module__.startswith("botocore"):
            raise
        sys.stderr.write(f"cluster/eks/ecr.py: {error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
