"""Container image names: the rule of the harness, and a mirror in front of it."""

from __future__ import annotations


def swebench_image(instance_id: str) -> str:
    """The image the harness derives for an instance: ``__`` as ``_1776_``, lower case (swebench task/checks.py)."""
    return f"swebench/sweb.eval.x86_64.{instance_id}:latest".lower().replace("__", "_1776_")


def through_registry(image: str, registry: str | None) -> str:
    """``image`` as a mirror serves it: its own registry host, if it names one, is replaced by ``registry``.

    A first part is a host when it contains a dot or a colon or is ``localhost`` (distribution's reference grammar).
    """
    if not registry:
        return image
    first, slash, rest = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        image = rest
    return f"{registry.rstrip('/')}/{image}"
