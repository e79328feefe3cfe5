"""The account's sandboxes that are ours, by their metadata."""

from __future__ import annotations

from collections.abc import Iterator

from steps.sandbox.ags.control import RUNNING, stop
from steps.sandbox.ags.service import list_all

KIND = "swe-argo"
"""Metadata that tells our sandboxes from others'."""


def our_instances() -> Iterator[tuple[str, dict[str, str]]]:
    """Id and metadata of those that run. Raises StepError."""
    for instance in list_all("DescribeSandboxInstanceList", "InstanceSet", "listing the sandboxes of AGS"):
        metadata = {str(each.get("Name")): str(each.get("Value") or "") for each in instance.get("Metadata") or []}
        if metadata.get("swe-argo") == KIND and instance.get("Status") in RUNNING:
            yield instance["InstanceId"], metadata


def stop_named(name: str) -> None:
    """Remove those of a name: a start whose answer never came may have made one. Raises StepError."""
    for number, metadata in list(our_instances()):
        if metadata.get("name") == name:
            stop(number)
