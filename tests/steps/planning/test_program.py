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


def test_a_folder_is_kept_with_the_digest_that_the_run_records(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "go").write_text("#!/bin/sh")
    spec = spec_of(command="./go {instruction}", folder=str(tmp_path / "program"))
    program = resolve(spec)
    assert program is not None
    assert program.recipe.command == ["{bundle}/go", "{instruction}"]
    assert program.bundle is not None
    kept = find_bundle(program.bundle.digest)
    assert kept is not None
    assert kept.facts == program.bundle
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


def test_a_command_of_the_image_needs_no_files() -> None:
    program = resolve(spec_of(command="go {instruction}"))
    assert program is not None
    assert (program.recipe.command, program.bundle) == (["go", "{instruction}"], None)


def test_one_of_our_agents_has_no_program_and_takes_no_version() -> None:
    assert resolve(spec_of(name="gold")) is None
    with pytest.raises(ConfigError, match=r"agent\.version: gold is no agent program"):
        resolve(spec_of(name="gold@2"))
    with pytest.raises(ConfigError, match=r"agent\.helper_model: gold has no helpers"):
        resolve(spec_of(name="gold", helper_model="small"))


def test_a_package_that_was_not_built_is_refused_with_the_command_that_builds_it(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=rf"of mine 1.2 for \w+ are not built: swe-argo agents build {recipe}$"):
        resolve(spec_of(file=str(recipe)))
    with pytest.raises(ConfigError, match=rf"of mine 2 for \w+ are not built: swe-argo agents build {recipe}@2$"):
        resolve(spec_of(file=str(recipe), version="2"))


def test_files_that_cannot_run_in_the_sandboxes_are_refused(recipe: Path) -> None:
    spec = spec_of(file=str(recipe))
    here = architecture_of(spec.sandbox)
    other = "arm64" if here == "amd64" else "amd64"
    recipe.write_text(f'architectures = ["{other}"]' + PACKAGE)
    with pytest.raises(ConfigError, match=rf"mine runs on {other}, and the sandboxes are {here}"):
        resolve(spec)
    recipe.write_text('libc = "musl"' + PACKAGE)
    with pytest.raises(ConfigError, match="mine needs musl, and this machine has glibc"):
        resolve(spec)


def test_the_architecture_is_that_of_the_sandboxes() -> None:
    spec = RunSpec.model_validate({"sandbox": {"backend": "docker", "platform": "linux/arm64"}})
    assert architecture_of(spec.sandbox) == "arm64"


def test_pods_have_files_from_an_image_and_the_command_that_makes_it_is_told(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.toml").write_text('name = "own"\ncommand = ["{bundle}/go"]\n[source]\nfolder = "."\n')
    for agent, told in (
        ({"file": str(recipe), "version": "2"}, rf"agents push {recipe}@2 IMAGE prints what --agent-image takes"),
        ({"file": str(tmp_path / "folder.toml")}, r"agents push \S+folder.toml IMAGE prints"),
        ({"command": "./go", "folder": str(tmp_path)}, r"agents push FILE.toml IMAGE prints"),
    ):
        spec = checked({"agent": agent, "sandbox": {"backend": "kubernetes"}}, "test")
        with pytest.raises(ConfigError, match=told) as caught:
            resolve(spec)
        assert caught.value.field == "agent.image"
    image = f"registry.example.com/mine@sha256:{'a' * 64}"
    spec = checked({"agent": {"file": str(recipe), "image": image}, "sandbox": {"backend": "kubernetes"}}, "test")
    program = resolve(spec)
    assert program is not None
    assert program.bundle is not None
    assert program.bundle.image == image
