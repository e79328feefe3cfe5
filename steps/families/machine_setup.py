"""Set-up of a fresh machine for an agent or a patch."""

from __future__ import annotations

from collections.abc import Mapping

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

TIMEOUT_S = 600.0
TRUST_REPOSITORY = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'"
"""A line of bash that lets git work in repositories of other users."""
_COMMIT = """
set -eu
git() {
  command git -c safe.directory='*' -c user.name=image -c user.email=image@localhost -c core.hooksPath=/dev/null "$@"
}
git add -u
git diff --cached --quiet || git commit -q --no-verify --no-gpg-sign -m 'State of the image'
"""


def remove_bytecode(folder: str) -> str:
    """Return a line of bash that removes caches of Python and pytest below a folder, except in virtual environments."""
    kinds = "-name __pycache__ -o -name .pytest_cache -o -name '*.pyc'"
    return f"find {folder} \\( -name .git -o -name .venv \\) -prune -o \\( {kinds} \\) -prune -exec rm -rf {{}} +"


def require_isolation(box: Sandbox, files: str) -> None:
    """Raise ConfigError if a sandbox shares this machine's paths; ``files`` names the files to write there."""
    if box.machine.isolation == "none":
        raise ConfigError(
            f"{files} are outside the repository, which needs an isolated sandbox: install bubblewrap, or use "
            "--backend docker",
            field="sandbox.backend",
        )


def run_setup(box: Sandbox, script: str, failures: Mapping[int, str]) -> None:
    """Run a set-up script in a fresh sandbox.

    Raises ConfigError if it ends with an exit code in ``failures`` (exit code -> problem of the image); InfraError or
    ResourceError if it fails otherwise.
    """
    result = box.exec(script, timeout_s=TIMEOUT_S)
    if result.exit_code is not None and result.exit_code in failures:
        raise ConfigError(f"{box.machine.image} {failures[result.exit_code]}", field="image")
    if result.exit_code != 0:
        raise script_failure("setting up the repository", result)


def commit_changes(box: Sandbox) -> None:
    """Commit the image's changes of tracked files, so that a patch contains only the agent's changes.

    R2E-Gym's images need this, since their set-up edited the repository.
    """
    run_setup(box, _COMMIT, {})
