"""What of a layer should make one doubt the reward: files that a verifier runs by, which are no part of an answer."""

from __future__ import annotations

import re

from steps.contracts.verdict import Finding
from steps.layers.archive import LayerContent

_SYSTEM = re.compile(
    rb"/usr(?:/local)?|/(?:usr/)?(?:local/)?(?:s?bin|lib(?:32|64|x32|exec)?)(?:/.*)?|/(?:nix|snap|etc/alternatives)/.*",
    re.DOTALL,
)
"""Programs and libraries. New ones may have been installed for the task; the image's own have no reason to change."""
_INSTALLED = re.compile(
    rb"/opt/(?:.*/)?(?:s?bin|lib(?:32|64|exec)?)/.*|/root/\.[^/]+/(?:.*/)?(?:bin|lib)/.*|.*/(?:site|dist)-packages/.*",
    re.DOTALL,
)
"""The same, where images have what no package manager of the system brought."""
_RUNNERS = re.compile(
    rb".*/(?:bash|sh|dash|env|python[\d.]*|pytest|py\.test|pip[\d.]*|uvx?|node|npm|npx|cargo|go|curl|wget|apt|apt-get|cat"
    rb"|echo|cp|rm|mkdir|chmod|tee|grep|diff|test|timeout|[gm]?awk|sed|sort|uniq|head|tail|wc|tr|cut|find|xargs|ls|mv|ln"
    rb"|cmp|stat|md5sum|sha\d+sum|seq|date|expr|dirname|basename|readlink|realpath|touch|sleep|id|which|printf|tar)",
    re.DOTALL,
)
"""Programs that scripts of verifiers call: a new one before the image's own is called in its place."""
_STARTUP = re.compile(
    rb"/etc/(?:ld\.so\.(?:preload|conf)|profile|bash\.bashrc|environment|hosts|passwd|pip\.conf|uv|apt/apt\.conf)(?:[./].*)?"
    rb"|/root/\.(?:bashrc|bash_profile|profile|bash_login|pythonrc|curlrc|wgetrc|npmrc|pip/.*|config/(?:pip|uv)/.*"
    rb"|cargo/config.*|local/bin/.*|local/lib/python[^/]*/site-packages/(?:_?pytest|pluggy|iniconfig)(?:/.*|\.py))"
    rb"|.*/(?:sitecustomize|usercustomize)(?:\.py|/.*)|.*/(?:site|dist)-packages/[^/]*\.pth"
    # pytest and its like look for their settings in the folders above /tests; python looks in its working folder first.
    rb"|/(?:conftest\.py|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|package\.json|go\.(?:mod|work)"
    rb"|node_modules/.*|\.cargo/.*)|(?!.*/(?:site|dist)-packages/).*/_?pytest(?:\.py|/__(?:init|main)__\.py)",
    re.DOTALL,
)
_SHOWN = 3


def examine_layer(content: LayerContent, kept_out: list[bytes]) -> list[Finding]:
    """The findings of one layer; none of them is part of Harbor's rule."""
    changed = [*content.replaced, *content.deleted]
    found = {
        "layer_changes_programs": [path for path in changed if _SYSTEM.fullmatch(path) or _INSTALLED.fullmatch(path)],
        "layer_shadows_programs": [
            path
            for path in content.changed
            if path not in content.replaced and _SYSTEM.fullmatch(path) and _RUNNERS.fullmatch(path)
        ],
        "layer_runs_code_later": [path for path in (*content.changed, *content.deleted) if _STARTUP.fullmatch(path)],
        "layer_plants_verifier_files": [path for path in kept_out if path not in (b"/logs", b"/run", b"/")],
    }
    return [Finding(code=code, detail=_describe(sorted(set(paths)))) for code, paths in found.items() if paths]


def _describe(paths: list[bytes]) -> str:
    first = ", ".join(path.decode(errors="replace")[:120] for path in paths[:_SHOWN])
    return first if len(paths) <= _SHOWN else f"{first} and {len(paths) - _SHOWN} more"
