"""``images/build`` before anything is built: names, and one line for each wrong setting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from swe_argo.steps.contracts.images import swebench_image, through_registry
from swe_argo.steps.datasets import load
from swe_argo.steps.datasets.mini import HARBOR_TASKS
from swe_argo.steps.datasets.mini.content import instance_ids
from tests.images.script import images_build
from tests.paths import ROOT


def test_the_images_have_the_names_that_runs_through_the_registry_ask_for() -> None:
    done = images_build("names", IMAGE_REGISTRY="registry.example.com/team/", IMAGE_TAG="7")
    wanted = [through_registry(swebench_image(name), "registry.example.com/team") for name in instance_ids()]
    ours = [f"registry.example.com/team/swe-argo-{name}:7" for name in ("steps", "training")]
    assert done.stdout.splitlines() == [*ours, *wanted]


def test_some_images_can_be_named() -> None:
    done = images_build("names", "mini__slugkit-1", "mini__plainconf-2")
    assert done.stdout.splitlines() == [swebench_image("mini__slugkit-1"), swebench_image("mini__plainconf-2")]


def test_that_of_verl_is_made_where_it_is_named() -> None:
    done = images_build("names", "verl", IMAGE_REGISTRY="registry.example.com/team", IMAGE_TAG="7")
    assert done.stdout == "registry.example.com/team/swe-argo-verl:7\n"


def test_tasks_that_are_folders_have_the_names_that_their_rows_ask_for() -> None:
    images = [row["image"] for row in load.load("harbor:mini", "test").rows]
    assert images_build("names", "harbor:mini").stdout.splitlines() == images
    assert images_build("names", str(HARBOR_TASKS / "greeting")).stdout.splitlines() == images[:1]
    done = images_build("names", "harbor:mini", IMAGE_REGISTRY="registry.example.com/team")
    assert done.stdout.splitlines() == [through_registry(image, "registry.example.com/team") for image in images]


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (["push"], {}, "IMAGE_REGISTRY is not set"),
        (["build", "steps"], {"BUILDER": "kaniko"}, "BUILDER=kaniko: docker or buildah"),
        (["build"], {"DOCKER_HOST": "unix:///no/such.sock", "BUILDER": "docker"}, "no Docker engine answers"),
        (["build", "mini__nope-1"], {}, "mini has no instance 'mini__nope-1'"),
        (["build", "mini"], {"PYTHON": "/no/such/python"}, "PYTHON=/no/such/python lacks the project's packages"),
    ],
)
def test_a_wrong_wish_is_one_line_that_names_it(words: list[str], environment: dict[str, str], said: str) -> None:
    if environment.get("BUILDER") == "docker" and "is not installed" in images_build(*words, **environment).stdout:
        pytest.skip("the docker command is not installed")
    done = images_build(*words, **environment)
    assert done.returncode == 64
    (line,) = done.stdout.splitlines()
    assert said in line


def test_make_hands_on_what_is_set_there() -> None:
    def make(*words: str) -> str:
        command = ["make", "--no-print-directory", "--old-file=.venv/.ready", *words, "IMAGES=steps"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        return done.stderr.splitlines()[0]

    for verb in ("build", "push"):
        said = make(verb, "IMAGE_REGISTRY=registry.example.com/team", "BUILDER=kaniko")
        assert said == "images/build: BUILDER=kaniko: docker or buildah"
    assert make("push", "IMAGE_REGISTRY=").startswith("images/build: IMAGE_REGISTRY is not set")


def test_without_a_builder_it_says_what_to_install(tmp_path: Path) -> None:
    for name in ("bash", "env", "sed", "dirname", "rm"):
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    done = images_build("build", "steps", PATH=str(tmp_path))
    assert done.returncode == 64
    assert done.stdout == "images/build: no builder: install buildah, or Docker and start its engine\n"


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["save"], ["build", "--help"]])
def test_a_call_that_it_does_not_know_prints_how_it_is_used(words: list[str]) -> None:
    done = images_build(*words)
    assert done.returncode == 64
    assert "images/build build|push [IMAGE...]" in done.stdout
