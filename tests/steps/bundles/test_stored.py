"""Bundles as this machine keeps them."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from swe_argo.steps.bundles.build import keep_folder
from swe_argo.steps.bundles.stored import find_bundle, remove_bundle, stored_bundles
from swe_argo.steps.bundles.tree import digest_tree, write_tar
from swe_argo.steps.contracts.recipe import Recipe, Source
from swe_argo.steps.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "program"
    (root / "lib").mkdir(parents=True)
    (root / "go").write_text("#!/bin/sh\necho hello\n")
    (root / "go").chmod(0o755)
    (root / "lib" / "data").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("lib/data")
    return root


def recipe_of(folder: Path) -> Recipe:
    return Recipe(name="mine", command=["{bundle}/go"], source=Source(folder=str(folder)))


def test_a_folder_is_kept_as_it_was_and_read_only(folder: Path) -> None:
    kept = keep_folder(recipe_of(folder), "amd64")
    digest = digest_tree(folder)
    (folder / "go").write_text("something else")
    assert digest_tree(kept.files) == kept.facts.digest == digest
    assert not any(path.stat().st_mode & 0o222 for path in kept.files.rglob("*"))
    assert find_bundle(digest) == kept


def test_the_same_folder_is_kept_once_and_another_beside_it(folder: Path) -> None:
    first = keep_folder(recipe_of(folder), "amd64")
    assert keep_folder(recipe_of(folder), "amd64") == first
    (folder / "more").write_text("")
    assert keep_folder(recipe_of(folder), "amd64") != first
    assert len(list(stored_bundles())) == 2


def test_a_bundle_can_be_removed(folder: Path) -> None:
    kept = keep_folder(recipe_of(folder), "amd64")
    assert remove_bundle(kept) is None
    assert find_bundle(kept.facts.digest) is None
    assert not kept.files.exists()


def test_a_half_made_bundle_is_none(folder: Path) -> None:
    (folder / "link").unlink()
    os.mkfifo(folder / "link")
    with pytest.raises(ConfigError, match="neither a file nor a folder nor a link"):
        keep_folder(recipe_of(folder), "amd64")
    assert not list(stored_bundles())


def test_a_digest_knows_what_may_be_executed_and_no_times(folder: Path) -> None:
    before = digest_tree(folder)
    (folder / "go").touch()
    assert digest_tree(folder) == before
    (folder / "go").chmod(0o644)
    assert digest_tree(folder) != before


def test_an_archive_is_the_same_bytes_for_the_same_files(folder: Path, tmp_path: Path) -> None:
    kept = keep_folder(recipe_of(folder), "amd64")
    first, second = io.BytesIO(), io.BytesIO()
    write_tar(folder, first, "opt/")
    write_tar(kept.files, second, "opt/")
    assert first.getvalue() == second.getvalue()
    with tarfile.open(fileobj=io.BytesIO(first.getvalue())) as archive:
        archive.extractall(tmp_path / "out", filter="tar")
    assert digest_tree(tmp_path / "out" / "opt") == digest_tree(folder)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        keep_folder(recipe_of(tmp_path / "nothing"), "amd64")
