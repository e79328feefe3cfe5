"""The mini images: each holds the very repository that mini is made of, and works as a sandbox."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from swe_argo.steps.contracts.images import swebench_image, through_registry
from swe_argo.steps.datasets.mini import digest, materialise
from swe_argo.steps.datasets.mini.containers import LABEL
from swe_argo.steps.datasets.mini.content import instance_ids
from tests.images.conftest import Shop
from tests.images.script import images_build

pytestmark = [pytest.mark.images, pytest.mark.slow, pytest.mark.timeout(900)]

ONE, OTHER = "mini__slugkit-1", "mini__slugkit-2"


def contents(testbed: Path) -> dict[str, bytes | str]:
    """File modes and bytes by path. Git's index holds times and inode numbers."""
    paths = [
        path for path in testbed.rglob("*") if path.is_file() and path.relative_to(testbed).parts != (".git", "index")
    ]
    return {str(path.relative_to(testbed)): f"{path.stat().st_mode:o}".encode() + path.read_bytes() for path in paths}


def test_the_repository_is_what_backend_docker_would_have_built(shop: Shop, tmp_path: Path) -> None:
    image = shop.build(ONE)
    container = shop.client.containers.create(image, "true")
    try:
        stream, _ = container.get_archive("/testbed")
        (tmp_path / "image.tar").write_bytes(b"".join(stream))
    finally:
        container.remove()
    with tarfile.open(tmp_path / "image.tar") as archive:
        archive.extractall(tmp_path / "image", filter="fully_trusted")
    materialise(ONE, tmp_path / "mini")
    assert contents(tmp_path / "image" / "testbed") == contents(tmp_path / "mini" / "testbed")


def test_every_instance_has_its_image_under_the_name_that_runs_ask_for(shop: Shop) -> None:
    if shop.name == "buildah":
        pytest.skip("all of them by one builder are enough")
    shop.build("mini")
    for name in instance_ids():
        image = shop.client.images.get(through_registry(swebench_image(name), shop.environment["IMAGE_REGISTRY"]))
        assert image.labels[LABEL] == digest(name)
        assert image.attrs["Config"]["WorkingDir"] == "/testbed"


def test_the_work_tree_is_clean_and_its_tests_pass(shop: Shop) -> None:
    image = shop.build(ONE)
    words = (
        "git -c safe.directory=/testbed status --porcelain && cp -r /testbed /tmp/t && cd /tmp/t && python -m pytest -q"
    )
    assert " passed" in shop.inside(image, "bash", "-c", words).splitlines()[-1]


def test_a_pushed_image_arrives_whole(shop: Shop) -> None:
    if shop.name == "docker" and shutil.which("buildah"):
        pytest.skip("buildah's is enough: Docker compresses the base for 10 s")
    shop.build(ONE)
    registry = f"{shop.pushed.address}/team"
    shop.run("build", ONE, IMAGE_REGISTRY=registry)
    shop.run("push", ONE, IMAGE_REGISTRY=registry)
    config = shop.pushed.config(f"team/{swebench_image(ONE)}")
    assert config["config"]["Labels"][LABEL] == digest(ONE)


def test_a_saved_archive_has_what_its_images_share_once(shop: Shop, tmp_path: Path) -> None:
    images = [shop.build(name) for name in (ONE, OTHER)]
    (archive,) = shop.run("save", str(tmp_path / "archives"), ONE, OTHER).split()
    with tarfile.open(archive) as tar:
        names = [member.name for member in tar if not member.isdir()]
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        told = json.load(manifest)
    assert sorted(each["RepoTags"] for each in told) == sorted([image] for image in images)  # Docker keeps no order
    one, other = (each["Layers"] for each in told)
    assert one[0] == other[0]  # the base
    assert one[-1] != other[-1]
    assert len(names) == len(set(names))
    assert {each["Config"] for each in told} | set(one) | set(other) <= set(names)
    with Path(archive).open("rb") as data:
        assert {image.tags[0] for image in shop.client.images.load(data)} == set(images)


def test_a_base_that_does_not_exist_is_named(shop: Shop) -> None:
    if shop.name == "buildah":
        pytest.skip("it would ask for the image again and again, for 6 s")
    done = images_build("build", ONE, **(shop.environment | {"BASE": "localhost/no-such-base:1"}))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].endswith("was not built on localhost/no-such-base:1: docker says why above")
