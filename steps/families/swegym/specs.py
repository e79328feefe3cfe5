"""SWE-Gym's install and test commands per repository.

Source: SWE-Gym/SWE-Bench-Package, swegym/harness/constants.py and log_parsers.py. Only repositories with swebench's
parser ``parse_log_pytest`` are supported; others are rejected by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from swe_argo.steps.families.columns import SourceRow, bad_column
from swe_argo.steps.families.swegym.rows import instance_id, repo, version

PARSER: Final = "parse_log_pytest"
"""The parser's name in swebench. SWE-Gym's differs in one case: it counts ``SKIPPED [1] ...`` as a test ``[1]``."""


@dataclass(frozen=True)
class GymSpec:
    """The commands of a repository."""

    install: str
    test_command: str
    before: str = ""
    """A command to run first, in the repository."""
    newer: tuple[frozenset[str], str] | None = None
    """Versions with another install command, and that command."""

    def of_version(self, version: str) -> GymSpec:
        """Return the commands of a version."""
        is_newer = self.newer is not None and version in self.newer[0]
        return replace(self, install=self.newer[1], newer=None) if self.newer and is_newer else self


def _versions(major: int, *minors: int) -> frozenset[str]:
    return frozenset(f"{major}.{minor}" for minor in minors)


_PIP = "python -m pip install"
_CONAN = "; ".join(
    f"{_PIP} -r conans/{file}.txt" for file in ("requirements", "requirements_server", "requirements_dev")
)
_DVC = (
    f'{_PIP} --upgrade pip wheel GitPython; {_PIP} "cython<3.0.0" && {_PIP} --no-build-isolation pyyaml==5.4.1; '
    f"{_PIP} git+https://github.com/iterative/mock-ssh-server.git || true; "
    f"{_PIP} -r tests/requirements.txt || true; {_PIP} -r test-requirements.txt || true; "
    f'{_PIP} -e ".[tests,dev,all_remotes,all,testing]";'
)
_HYDRA = "pip install -r requirements/dev.txt; pip install -e .;"
_PANDAS = f"{_PIP} -ve . --no-build-isolation -Ceditable-verbose=true; pip uninstall pytest-qt -y;"
_SPECS: Final = {
    "bokeh/bokeh": GymSpec(
        'pip install "setuptools<66" "jinja2<3.1"; printf "1\n" | python setup.py develop; bokeh sampledata;',
        "pytest -rA -n0",
        newer=(_versions(3, 0, 3, 4, 5), f"{_PIP} -e .; {_PIP} bokeh_sampledata;"),
    ),
    "conan-io/conan": GymSpec(
        f"echo 'cython<3' > /tmp/constraint.txt; export PIP_CONSTRAINT=/tmp/constraint.txt; {_CONAN} ",
        "pytest -n0 -rA",
        before="export PYTHONPATH=${PYTHONPATH:-}:$(pwd)",
        newer=(_versions(1, 60, 61, 62) | _versions(2, 1, 2, 3, 4), f"{_CONAN} "),
    ),
    "dask/dask": GymSpec(f"{_PIP} --no-deps -e .", "pytest -n0 -rA  --color=no"),
    "facebookresearch/hydra": GymSpec(
        r"sed -i 's|isort@git+git://github.com/timothycrosley/isort|isort@git+https://github.com/timothycrosley/isort|g'"
        ' requirements/dev.txt; { tail -n1 requirements/requirements.txt | grep -q "." && echo ""; } >> '
        'requirements/requirements.txt; echo "pip==24.0" >> requirements/requirements.txt;'
        f'pip install "pip==24.0"; {_HYDRA}',
        "pytest -rA --tb=long",
        newer=(_versions(1, 3, 4), _HYDRA),
    ),
    "getmoto/moto": GymSpec("make init", "pytest -n0 -rA"),
    "hypothesisworks/hypothesis": GymSpec(
        f"{_PIP} -r requirements/test.txt; {_PIP} -e hypothesis-python/;",
        "pytest -n0 -rA --tb=no --no-header",
    ),
    "iterative/dvc": GymSpec(
        f'{_DVC} {_PIP} "numpy<=1.20"; {_PIP} "pytest<8";',
        "pytest -rA",
        newer=(
            _versions(3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 17, 19, 23, 24, 28, 29, 36, 37, 38, 43, 47, 48, 49),
            _DVC,
        ),
    ),
    "modin-project/modin": GymSpec(
        f"{_PIP} -e .; {_PIP} numpy==1.23.1 protobuf==3.20.1;",
        "pytest -n0 -rA",
        newer=(_versions(0, *range(20, 31)), f"{_PIP} -e .;"),
    ),
    "pandas-dev/pandas": GymSpec(
        f"{_PIP} 'numpy<2'; {_PANDAS}",
        "pytest -rA --tb=long",
        newer=(_versions(2, 2) | _versions(3, 0), _PANDAS),
    ),
    "project-monai/monai": GymSpec(
        r"sed -i '/^git+https:\/\/github.com\/Project-MONAI\//d' requirements-dev.txt; "
        f"{_PIP} types-pkg-resources==0.1.3 pytest; pip install -r requirements-dev.txt;"
        "python setup.py develop;",
        "pytest -rA",
    ),
}
_BUNDLED = "mini/"
_BUNDLED_SPEC: Final = GymSpec("true", "python -m pytest -rA")
_UNSUPPORTED: Final = {"pydantic/pydantic": "needs its own parser", "python/mypy": "selects its tests by name"}


def is_repository(name: str) -> bool:
    """Return whether SWE-Gym has tasks of a repository, supported or not."""
    return name.lower() in _SPECS or name.lower() in _UNSUPPORTED or name.startswith(_BUNDLED)


def spec_of(row: SourceRow) -> GymSpec:
    """Return the commands of a row's repository and version. Raises ConfigError for an unsupported repository."""
    name = repo(row).lower()
    if name in _SPECS:
        return _SPECS[name].of_version(version(row))
    if name.startswith(_BUNDLED):
        return _BUNDLED_SPEC
    reason = _UNSUPPORTED.get(name, "is not a repository of SWE-Gym")
    supported = ", ".join(sorted(_SPECS))
    raise bad_column(instance_id(row), "repo", f"{name} {reason}: not supported (supported: {supported})")
