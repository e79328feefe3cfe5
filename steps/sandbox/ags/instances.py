"""The account's sandboxes, found by their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swe_argo.steps.sandbox.ags.control import RUNNING, stop
from swe_argo.steps.sandbox.ags.service import list_all
from swe_argo.steps.sandbox.envd.orphans import OUR_METADATA


def list_instances(filters: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield id and metadata of the sandboxes that run or start and whose metadata contain ``filters``.

    Raises StepError if the service fails.
    """
    for instance in list_all("DescribeSandboxInstanceList", "InstanceSet", "listing the sandboxes of AGS"):
        metadata = {str(item.get("Name")): str(item.get("Value") or "") for item in instance.get("Metadata") or []}
        if filters.items() <= metadata.items() and instance.get("Status") in RUNNING:
            yield instance["InstanceId"], metadata


def stop_named(name: str) -> None:
    """Remove our sandboxes of a name, as a start with a lost answer may have created one.

    Raises StepError if the service fails.
    """
    for instance_id, _ in list(list_instances({**OUR_METADATA, "name": name})):
        stop(instance_id)
