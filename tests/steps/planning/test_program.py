"""What a plan makes of an agent program, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_argo.steps.bundles.stored import find_bundle
from swe_argo.steps.contracts.data import DatasetLock, RunFile
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.planning.program import architecture_of, resolve_program
from swe_argo.steps.settings import settings
from swe_argo.steps.spec_parsing import checked

PACKAGE = """
name = "mine"
version = "1.2"
command = ["{bundle}/mine"]
[source.npm]
package = "mine"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SWE_ARGO_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    yield
    settings.cache_clear()


def spec_of(**agent: str) -> RunSpec:
    return checked({"agent": agent}, "test")


def resolve(spec: RunSpec, before: RunFile | None = None) -> AgentProgram | None:
    return resolve_program(spec, spec, before)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(PACKAGE)
    return tmp_path / "mine.toml"


def test_program_folder_is_stored(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "go").write_text("#!/bin/sh")
    spec = spec_of(command="./go {instruction}", folder=str(tmp_path / "program"))
    program = resolve(spec)
    assert program is not None
    assert program.recipe.command == ["{bundle}/go", "{instruction}"]
    assert program.bundle is not None
    stored = find_bundle(program.bundle.digest)
    assert stored is not None
    assert stored.facts == program.bundle
    before = RunFile(
        run_id="r",
        spec=spec,
        dataset=DatasetLock(name="mini", split="test", revision=None, rows=0, sha256=""),
        model="m",
        versions={},
        created_at="",
        program=program,
    )
    assert resolve(spec, before) == program
    (tmp_path / "program" / "go").write_text("#!/bin/bash")
    with pytest.raises(ConfigError, match="began with another recipe or other files of go; use another run id"):
        resolve(spec, before)


def test_image_command_needs_no_bundle() -> None:
    program = resolve(spec_of(command="go {instruction}"))
    assert program is not None
    assert (program.recipe.command, program.bundle) == (["go", "{instruction}"], None)


def test_builtin_agent_has_no_program() -> None:
    assert resolve(spec_of(name="gold")) is None
    with pytest.raises(ConfigError, match=r"agent\.version: gold is not an agent program"):
        resolve(spec_of(name="gold@2"))
    with pytest.raises(
        ConfigError, match=r"agent\.helper_model: helper models apply to agent programs only, not to gold"
    ):
        resolve(spec_of(name="gold", helper_model="small"))


def test_unbuilt_bundle_names_command(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=rf"of mine 1.2 for \w+ are not built: run swe-argo agents build {recipe}$"):
        resolve(spec_of(file=str(recipe)))
    with pytest.raises(ConfigError, match=rf"of mine 2 for \w+ are not built: run swe-argo agents build {recipe}@2$"):
        resolve(spec_of(file=str(recipe), version="2"))


def test_unfit_bundle_is_refused(recipe: Path) -> None:
    spec = spec_of(file=str(recipe))
    here = architecture_of(spec.sandbox)
    wrong_architecture = "arm64" if here == "amd64" else "amd64"
    recipe.write_text(f'architectures = ["{wrong_architecture}"]' + PACKAGE)
    with pytest.raises(ConfigError, match=rf"mine runs on {wrong_architecture}, but the sandboxes are {here}"):
        resolve(spec)
    recipe.write_text('libc = "musl"' + PACKAGE)
    with pytest.raises(ConfigError, match="mine needs musl, but this machine has glibc"):
        resolve(spec)


def test_architecture_follows_sandboxes() -> None:
    spec = RunSpec.model_validate({"sandbox": {"backend": "docker", "platform": "linux/arm64"}})
    assert architecture_of(spec.sandbox) == "arm64"


def test_pods_require_agent_image(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.toml").write_text('name = "own"\ncommand = ["{bundle}/go"]\n[source]\nfolder = "."\n')
    for agent, message in (
        ({"file": str(recipe), "version": "2"}, rf"agents push {recipe}@2 IMAGE, and pass the printed address"),
        ({"file": str(tmp_path / "folder.toml")}, r"agents push \S+folder.toml IMAGE, and pass"),
        ({"command": "./go", "folder": str(tmp_path)}, r"agents push FILE.toml IMAGE, and pass"),
    ):
        spec = checked({"agent": agent, "sandbox": {"backend": "kubernetes"}}, "test")
        with pytest.raises(ConfigError, match=message) as caught:
            resolve(spec)
        assert caught.value.field == "agent.image"
    image = f"registry.example.com/mine@sha256:{'a' * 64}"
    spec = checked({"agent": {"file": str(recipe), "image": image}, "sandbox": {"backend": "kubernetes"}}, "test")
    program = resolve(spec)
    assert program is not None
    assert program.bundle is not None
    assert program.bundle.image == image
