"""Setting up a fresh machine before an agent or a patch comes to it."""

from __future__ import annotations

from collections.abc import Mapping

from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.protocol import Sandbox
from swe_argo.steps.sandbox.script_failure import script_failure

TIMEOUT_S = 600.0
TRUST_REPOSITORY = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'"
"""A line of bash: git works in repositories of other users too."""
_COMMIT = """
set -eu
git() {
  command git -c safe.directory='*' -c user.name=image -c user.email=image@localhost -c core.hooksPath=/dev/null "$@"
}
git add -u
git diff --cached --quiet || git commit -q --no-verify --no-gpg-sign -m 'State of the image'
"""


def remove_bytecode(folder: str) -> str:
    """A line of bash that removes what Python and pytest left below a folder, virtual environments apart."""
    kinds = "-name __pycache__ -o -name .pytest_cache -o -name '*.pyc'"
    return f"find {folder} \\( -name .git -o -name .venv \\) -prune -o \\( {kinds} \\) -prune -exec rm -rf {{}} +"


def require_isolation(box: Sandbox, what: str) -> None:
    """Raises ConfigError where a sandbox's paths are this machine's own: ``what`` would be put there."""
    if box.machine.isolation == "none":
        raise ConfigError(
            f"{what} outside the repository, where a sandbox without isolation has no place of its own: install "
            "bubblewrap, or use --backend docker",
            field="sandbox.backend",
        )


def run_setup(box: Sandbox, script: str, failures: Mapping[int, str]) -> None:
    """Run a script of ours in a fresh sandbox.

    Raises ConfigError where it ends with one of ``failures``: exit code -> what is wrong with the image; InfraError or
    ResourceError where it fails otherwise.
    """
    result = box.exec(script, timeout_s=TIMEOUT_S)
    if result.exit_code is not None and result.exit_code in failures:
        raise ConfigError(f"{box.machine.image} {failures[result.exit_code]}", field="image")
    if result.exit_code != 0:
        raise script_failure("setting up the repository", result)


def commit_changes(box: Sandbox) -> None:
    """Make what the image changed in tracked files its HEAD: a patch is then of the agent's changes alone.

    R2E-Gym's images are so: their set-up edited sources of the repository.
    """
    run_setup(box, _COMMIT, {})
