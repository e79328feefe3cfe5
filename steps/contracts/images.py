"""Container image names: the harness's rule, and registry mirrors."""

from __future__ import annotations


def swebench_image(instance_id: str) -> str:
    """Return the harness's image of an instance: ``__`` as ``_1776_``, lower case (swebench task/checks.py)."""
    return f"swebench/sweb.eval.x86_64.{instance_id}:latest".lower().replace("__", "_1776_")


def through_registry(image: str, registry: str | None) -> str:
    """Return an image's name at a mirror: ``registry`` replaces the image's own registry host, if it has one.

    A first part is a host when it contains a dot or a colon or is ``localhost`` (distribution's reference grammar).
    """
    if not registry:
        return image
    host, slash, path = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        image = path
    return f"{registry.rstrip('/')}/{image}"
