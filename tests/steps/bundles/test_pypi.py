"""Packages of PyPI as pip resolves them, from a folder of wheels."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import lock_package
from swe_argo.steps.bundles.recipes import read_chosen
from swe_argo.steps.errors import ConfigError

RECIPE = """
name = "mine"
version = "{version}"
libc = "glibc"
command = ["{{bundle}}/python/bin/python3", "-m", "my_tool"]
[source.pypi]
package = "my-tool"
"""


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(index: Path, name: str, version: str, *needs: str, tag: str = "py3-none-any", python: str = "") -> None:
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [*(f"Requires-Dist: {need}" for need in needs), *([f"Requires-Python: {python}"] if python else [])]
    with zipfile.ZipFile(index / f"{name}-{version}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")


def lock(folder: Path, version: str) -> str:
    (folder / "mine.toml").write_text(RECIPE.format(version=version))
    return lock_package(read_chosen(folder / "mine.toml")).decode()


def test_missing_wheel_is_named(tmp_path: Path, index: Path) -> None:
    add_wheel(index, "my_tool", "1.0", "middle")
    add_wheel(index, "middle", "3", "native>=2")
    add_wheel(index, "native", "2", tag="cp311-cp311-manylinux_2_28_x86_64")  # of another Python
    with pytest.raises(ConfigError, match=r"the registry has no my-tool 2\.0 for Python 3\.14 on amd64"):
        lock(tmp_path, "2.0")
    with pytest.raises(ConfigError) as error:
        lock(tmp_path, "1.0")
    assert str(error.value) == (
        "agent: my-tool 1.0 for Python 3.14 on amd64 needs native>=2, of which its registry has no wheel for that "
        "Python and architecture; if it is pure Python, name it in source.pypi.sources"
    )
    for machine in ("x86_64", "aarch64"):
        add_wheel(index, "native", "2", tag=f"cp314-cp314-manylinux_2_28_{machine}")
    assert lock(tmp_path, "1.0").count("--hash") == 0  # files of this machine: only downloads have hashes


@pytest.mark.parametrize("pinned", ["my_tool", "older"])
def test_python_requirement_is_named(pinned: str, tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes name the needed Python beside the link, so pip leaves the version out of its message."""
    add_wheel(index, "my_tool", "1.0", "older==1")
    add_wheel(index, "older", "1")
    links = [
        f'<a href="{file.as_uri()}" data-requires-python="&gt;={"3.15" if file.name.startswith(pinned) else "3"}">'
        f"{file.name}</a>"
        for file in index.iterdir()
    ]
    page = tmp_path / "links.html"
    page.write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
    monkeypatch.setenv("PIP_FIND_LINKS", page.as_uri())
    requirement = "my-tool==1.0" if pinned == "my_tool" else "older==1"
    message = rf"my-tool 1\.0 .* cannot be installed: {requirement} requires Python >=3\.15"
    with pytest.raises(ConfigError, match=message):
        lock(tmp_path, "1.0")


def test_unfit_packages_are_refused(tmp_path: Path, index: Path) -> None:
    add_wheel(index, "my_tool", "1.0", "older")
    add_wheel(index, "older", "1", python="<3.14")
    with pytest.raises(ConfigError, match=r"cannot be installed: Package 'older' requires a different Python"):
        lock(tmp_path, "1.0")
    add_wheel(index, "my_tool", "2.0", "left", "right")
    for name in ("left", "right"):
        add_wheel(index, name, "1", f"both=={name == 'left':d}")
    for version in "01":
        add_wheel(index, "both", version)
    with pytest.raises(ConfigError, match=r"cannot be installed: .*conflicting dependencies"):
        lock(tmp_path, "2.0")
