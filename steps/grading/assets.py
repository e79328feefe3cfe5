"""Binary test files that a text patch cannot carry (SWE-bench Multimodal): fetched, staged, restored by the script."""

from __future__ import annotations

from typing import Any

from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import InfraError
from swe_argo.steps.grading import official
from swe_argo.steps.grading.instance_log import InstanceLogWriter
from swe_argo.steps.sandbox.protocol import Sandbox

FETCH_TIMEOUT_S = 60.0


def stage_assets(box: Sandbox, spec: Any, recorder: InstanceLogWriter) -> list[str]:
    """Copy the row's assets to ``/image_assets`` and return the commands that put them into the working tree.

    Raises InfraError if one cannot be fetched. The harness continues without it; the missing baseline then fails the
    tests, so an infrastructure failure is scored as the agent's.
    """
    declared = spec.image_assets or {}
    assets = [asset for key in ("test_patch", "patch") for asset in declared.get(key) or [] if asset.get("path")]
    commands = []
    for asset in assets:
        path = asset["path"]
        flat = path.replace("/", "__")
        box.write(f"/image_assets/{flat}", _fetch(asset, spec.instance_id))
        commands.append(f"mkdir -p $(dirname {path}) && cp /image_assets/{flat} {path}")
    if commands:
        recorder.info(
            f"Staged {len(commands)} patch asset(s) for restore after git apply "
            f"(0 from the local mirror, {len(commands)} fetched)"
        )
    return commands


def add_restore_commands(script: str, commands: list[str]) -> str:
    """Return the script with ``commands`` before its START line: they must follow its ``rm -f`` and ``git apply``."""
    if not commands:
        return script
    lines = script.split("\n")
    for number, line in enumerate(lines):
        if official.harness_constants().START_TEST_OUTPUT in line:
            return "\n".join(lines[:number] + commands + lines[number:])
    return script + "\n" + "\n".join(commands)


def _fetch(asset: dict[str, Any], instance_id: str) -> bytes:
    """Download an asset. Raises InfraError if it has no http(s) address or cannot be fetched."""
    url = str(asset.get("url") or "")
    if not url.startswith(("http://", "https://")):
        raise InfraError(FailureClass.TEST_ENVIRONMENT, f"{instance_id}: no address for test file {asset['path']}")
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as response:  # noqa: S310 - http(s) only, see above
            return bytes(response.read())
    except OSError as error:
        raise InfraError(
            FailureClass.TEST_ENVIRONMENT, f"{instance_id}: test file {url} could not be fetched: {error}"
        ) from error
