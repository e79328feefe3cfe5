"""Templates with an agent's files, which are uploaded once and into no sandbox."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.bundles.stored import digest_tree
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.bundle_mounts import upload_bundle
from swe_argo.steps.sandbox.e2b import stored_templates
from swe_argo.steps.sandbox.e2b.backend import E2BBackend
from swe_argo.steps.sandbox.e2b.stored_templates import build_templates
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import BundleMount, Sandbox, SandboxNeeds
from swe_argo.steps.settings import settings
from tests.steps.sandbox.conformance import says
from tests.steps.sandbox.e2b.lab import E2BLab, laboratory
from tests.steps.sandbox.e2b.template_builds import TemplatePlane
from tests.steps.sandbox.lab import IMAGE, add_image
from tests.steps.sandbox.mounted_bundles import PLACE, make_bundle

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
OTHER = "other/image:2"
NOISE = 1 << 18
"""Bytes of the agent's files that no archive compresses."""
READS_ITSELF = f"{PLACE}/go link | wc -c", f"{256 * 8192}\n"


@pytest.fixture
def lab(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[E2BLab]:
    monkeypatch.setattr(stored_templates, "build_templates", partial(build_templates, poll_s=0.02))
    with laboratory(tmp_path / "e2b", checkout) as lab:
        add_image(lab.server.machines.images, checkout, "other__image:2")
        yield lab


@pytest.fixture
def plane(lab: E2BLab) -> TemplatePlane:
    return lab.server.control.templates


@pytest.fixture
def bundle(tmp_path: Path) -> BundleMount:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "noise").write_bytes(random.Random(0).randbytes(NOISE))
    return make_bundle(tmp_path / "bundle")


def copy_bundle(bundle: BundleMount, folder: Path, more: str = "") -> BundleMount:
    """Copy an agent's files; ``more``: a line for its program, which makes another version."""
    assert bundle.folder is not None
    shutil.copytree(bundle.folder, folder, symlinks=True)
    (folder / "go").chmod(0o755)
    with (folder / "go").open("a") as file:
        file.write(more)
    (folder / "go").chmod(0o555)
    return BundleMount(digest_tree(folder), folder, None)


def plan(bundle: BundleMount | None, *images: str, **table: object) -> None:
    spec = SandboxSpec.model_validate({"backend": "e2b", "e2b": table})
    E2BBackend.ready(
        spec, SandboxNeeds(list(images), acts=True, solves=True, grading_network=True, timeout_s=60, bundle=bundle)
    )


def begin(lab: E2BLab, image: str, bundle: BundleMount | None, **table: object) -> Sandbox:
    """Create a sandbox as a unit does, and upload the agent's files that it lacks."""
    request = lab.request(image=image, bundle=bundle)
    box = lab.connect(**table).create(request)
    lab.sandboxes.append(box)
    upload_bundle(box, request)
    return box


def template_used(lab: E2BLab) -> str:
    return str(lab.server.control.creates[-1]["templateID"])


def uploads_into_sandboxes(lab: E2BLab) -> int:
    return sum(size > NOISE for size in lab.server.writes)


def test_template_holds_the_agent_files(lab: E2BLab, bundle: BundleMount) -> None:
    lab.server.faults.refused_uploads = 1  # the upload is retried
    plan(bundle, IMAGE)
    box = begin(lab, IMAGE, bundle)
    assert template_used(lab) == template_name(IMAGE, bundle=bundle.digest)
    assert says(box, f"{PLACE}/go lib/data | cmp - {PLACE}/link && ls -A {PLACE}") == "go\nlib\nlink\nnoise\n"
    modes = ["dr-xr-xr-x", "-r-xr-xr-x", "dr-xr-xr-x", "-r--r--r--", "lrwxrwxrwx"]
    assert says(box, f"cd {PLACE} && stat -c %A . go lib lib/data link").split() == modes
    assert says(box, "cat /opt/swe-argo/.digest hello.txt") == f"{bundle.digest}hello\n"
    assert says(box, "ls /opt/swe-argo") == "agent\n"
    assert uploads_into_sandboxes(lab) == 0


def test_agent_version_has_own_template(lab: E2BLab, plane: TemplatePlane, bundle: BundleMount, tmp_path: Path) -> None:
    names = [template_name(OTHER), *(template_name(image, bundle=bundle.digest) for image in (IMAGE, OTHER))]
    for _ in range(2):
        plan(bundle, IMAGE, OTHER)
    assert [build.name for build in plane.builds] == names
    assert says(begin(lab, OTHER, None), "ls /opt") == "", "a sandbox for grading has no agent"
    assert template_used(lab) == template_name(OTHER)
    plan(copy_bundle(bundle, tmp_path / "elsewhere" / "bundle"), IMAGE)
    assert plane.uploads == 1, "equal files are uploaded once for all templates"
    newer = copy_bundle(bundle, tmp_path / "newer" / "bundle", "# newer\n")
    plan(newer, IMAGE)
    assert plane.uploads == 2
    assert says(begin(lab, IMAGE, newer), f"tail -n 1 {PLACE}/go") == "# newer\n"
    assert "newer" not in says(begin(lab, IMAGE, bundle), f"cat {PLACE}/go")
    assert uploads_into_sandboxes(lab) == 0


def test_mapped_template_needs_uploads(lab: E2BLab, plane: TemplatePlane, bundle: BundleMount, tmp_path: Path) -> None:
    file = tmp_path / "templates.json"
    file.write_text(f'{{"{OTHER}": "{template_name(IMAGE)}"}}')
    plan(bundle, OTHER, templates=str(file))
    assert plane.builds == []
    for _ in range(2):
        box = begin(lab, OTHER, bundle, templates=str(file))
        assert template_used(lab) == template_name(IMAGE)
        assert says(box, READS_ITSELF[0]) == READS_ITSELF[1]
    assert uploads_into_sandboxes(lab) == 2


def test_template_outlives_local_files(lab: E2BLab, bundle: BundleMount) -> None:
    without_files = replace(bundle, folder=None)
    with pytest.raises(ConfigError, match=f"no agent files {bundle.digest}: run swe-argo agents build"):
        plan(without_files, IMAGE)
    plan(bundle, IMAGE)
    plan(without_files, IMAGE)
    assert says(begin(lab, IMAGE, without_files), READS_ITSELF[0]) == READS_ITSELF[1]


def test_error_names_missing_template(lab: E2BLab, plane: TemplatePlane, bundle: BundleMount) -> None:
    lacking = r"1 of 1 images have no template at E2B with the agent's files \(first: swe-argo-.*templates"
    with pytest.raises(ConfigError, match=lacking):
        plan(bundle, IMAGE, build_templates=False)
    assert plane.builds == []


def test_failed_upload_is_reported(lab: E2BLab, bundle: BundleMount) -> None:
    lab.server.faults.refused_uploads = 1000
    with pytest.raises(ConfigError, match=rf"could not build 1 of 1 templates.*{IMAGE}.*Failed to upload file"):
        plan(bundle, IMAGE)
    assert template_name(IMAGE, bundle=bundle.digest) not in lab.server.machines.templates


@pytest.mark.long
def test_upload_may_exceed_request_limit(
    lab: E2BLab, plane: TemplatePlane, bundle: BundleMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.server.faults.upload_seconds = 5.0  # the SDK lets a transfer take twice what a request may
    monkeypatch.setenv("E2B_CONNECTION_TIMEOUT", "2")
    settings.cache_clear()
    plan(bundle, IMAGE)
    assert (plane.uploads, len(plane.builds)) == (1, 1)
