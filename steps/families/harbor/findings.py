"""Findings on a layer: changes to the verifier's files, which are no part of a solution."""

from __future__ import annotations

import re

from swe_argo.steps.contracts.verdict import Finding
from swe_argo.steps.layers.archive import LayerContent

_SYSTEM = re.compile(
    rb"/usr(?:/local)?|/(?:usr/)?(?:local/)?(?:s?bin|lib(?:32|64|x32|exec)?)(?:/.*)?|/(?:nix|snap|etc/alternatives)/.*",
    re.DOTALL,
)
"""Programs and libraries. A task may install new ones, but has no reason to change the image's."""
_OWN = re.compile(
    rb"/usr/local/s?bin/[^/]+|.*/(?:site|dist)-packages/(?:[^/]+\.(?:pth|egg-link)|__editable__[^/]*"
    rb"|[^/]+\.(?:dist|egg)-info(?:/.*)?)",
    re.DOTALL,
)
"""Programs that tasks add, and files that an editable install writes."""
_INSTALLED = re.compile(
    rb"/opt/(?:.*/)?(?:s?bin|lib(?:32|64|exec)?)/.*|/root/\.[^/]+/(?:.*/)?(?:bin|lib)/.*|.*/(?:site|dist)-packages/.*",
    re.DOTALL,
)
"""Programs and libraries outside the system's package manager."""
_RUNNERS = re.compile(
    rb".*/(?:bash|sh|dash|env|python[\d.]*|pytest|py\.test|pip[\d.]*|uvx?|node|npm|npx|cargo|go|curl|wget|apt|apt-get|cat"
    rb"|echo|cp|rm|mkdir|chmod|tee|grep|diff|test|timeout|[gm]?awk|sed|sort|uniq|head|tail|wc|tr|cut|find|xargs|ls|mv|ln"
    rb"|cmp|stat|md5sum|sha\d+sum|seq|date|expr|dirname|basename|readlink|realpath|touch|sleep|id|which|printf|tar)",
    re.DOTALL,
)
"""Programs that verifier scripts call."""
_STARTUP = re.compile(
    rb"/etc/(?:ld\.so\.(?:preload|conf)|hosts|passwd|pip\.conf|uv|apt/apt\.conf)(?:[./].*)?"
    rb"|/root/\.(?:curlrc|wgetrc|npmrc|pip/.*|config/(?:pip|uv)/.*"
    rb"|cargo/config.*|local/lib/python[^/]*/site-packages/(?:_?pytest|pluggy|iniconfig)(?:/.*|\.py))"
    rb"|.*/(?:sitecustomize|usercustomize)(?:\.py|/.*)"
    # pytest and similar tools read settings from the folders above /tests; python looks in its working folder first.
    rb"|/(?:conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|package\.json|go\.(?:mod|work)"
    rb"|node_modules/.*|\.cargo/.*)|(?!.*/(?:site|dist)-packages/).*/_?pytest(?:\.py|/__(?:init|main)__\.py)",
    re.DOTALL,
)
"""Files that programs of a verifier run or read their settings from when they start."""


def examine_layer(content: LayerContent, blocked: list[bytes]) -> list[Finding]:
    """Return the findings of one layer, which Harbor's rule ignores. ``blocked``: paths that were not applied."""
    paths_by_code = {
        "layer_changes_programs": [path for path in (*content.replaced, *content.deleted) if _is_program(path)],
        "layer_runs_code_later": [path for path in (*content.changed, *content.deleted) if _STARTUP.fullmatch(path)],
        # Every layer may list the folders above the verifier's.
        "layer_plants_verifier_files": [path for path in blocked if path not in (b"/logs", b"/run", b"/")],
    }
    return [
        Finding.of_paths(code, {path.decode(errors="backslashreplace") for path in paths})
        for code, paths in paths_by_code.items()
        if paths
    ]


def _is_program(path: bytes) -> bool:
    """Return whether a path is a program or library of the image."""
    if _OWN.fullmatch(path) and not _RUNNERS.fullmatch(path):
        return False
    return bool(_SYSTEM.fullmatch(path) or _INSTALLED.fullmatch(path))
