"""The account's sandboxes, found by their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from swe_argo.steps.sandbox.ags.control import RUNNING, stop
from swe_argo.steps.sandbox.ags.service import list_all
from swe_argo.steps.sandbox.envd.orphans import OURS


def list_instances(wanted: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield id and metadata of running sandboxes that have all of ``wanted``. Raises StepError."""
    for instance in list_all("DescribeSandboxInstanceList", "InstanceSet", "listing the sandboxes of AGS"):
        metadata = {str(each.get("Name")): str(each.get("Value") or "") for each in instance.get("Metadata") or []}
        if wanted.items() <= metadata.items() and instance.get("Status") in RUNNING:
            yield instance["InstanceId"], metadata


def stop_named(name: str) -> None:
    """Remove our sandboxes of a name: a start with a lost answer may have made one. Raises StepError."""
    for number, _ in list(list_instances({**OURS, "name": name})):
        stop(number)
