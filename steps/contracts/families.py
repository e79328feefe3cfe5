"""The task families by name, with their modules, which are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SWEBENCH = "swebench"
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "r2e": "swe_argo.steps.families.r2e.family",
        "swesmith": "swe_argo.steps.families.swesmith.family",
        "rebench": "swe_argo.steps.families.rebench.family",
        "swegym": "swe_argo.steps.families.swegym.family",
        "harbor": "swe_argo.steps.families.harbor.family",
        SWEBENCH: "swe_argo.steps.families.swebench.family",
    }
)
"""Name -> module whose ``FAMILY`` is a ``steps.families.family.Family``. The first that recognizes a row is used."""


def is_own_family(name: str) -> bool:
    """Whether it names a user's own family: ``package.module:Name`` or ``path/to/file.py:Name``."""
    return ":" in name
