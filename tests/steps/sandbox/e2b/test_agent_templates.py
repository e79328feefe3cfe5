"""An agent's files in templates: uploaded once, and into no sandbox."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.bundles.tree import digest_tree
from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.sandbox.bundle_upload import upload_bundle
from swe_argo.steps.sandbox.e2b.stored_templates import list_templates
from swe_argo.steps.sandbox.e2b.templates import template_name
from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.protocol import BundleMount, Sandbox, SandboxRequest
from swe_argo.steps.sandbox.readiness import SandboxNeeds, ready
from swe_argo.steps.settings import settings
from tests.steps.sandbox.conformance import says
from tests.steps.sandbox.e2b.lab import E2BLab, laboratory
from tests.steps.sandbox.envd.lab import IMAGE
from tests.steps.sandbox.mounted_bundles import PLACE, make_bundle

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
OTHER = "other/image:2"
NOISE = 1 << 18
"""Bytes of the agent's files that no archive makes fewer."""


@pytest.fixture
def lab(tmp_path: Path, checkout: Path) -> Iterator[E2BLab]:
    with laboratory(tmp_path / "e2b", checkout) as lab:
        shutil.copytree(checkout, lab.server.machines.images / "other__image:2" / "testbed")
        yield lab


@pytest.fixture
def bundle(tmp_path: Path) -> BundleMount:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "noise").write_bytes(random.Random(0).randbytes(NOISE))
    return make_bundle(tmp_path / "bundle")


def changed(bundle: BundleMount, folder: Path) -> BundleMount:
    """Another version of the agent."""
    assert bundle.folder is not None
    shutil.copytree(bundle.folder, folder, symlinks=True)
    (folder / "go").chmod(0o755)
    with (folder / "go").open("a") as file:
        file.write("# newer\n")
    (folder / "go").chmod(0o555)
    return BundleMount(digest_tree(folder), folder, None)


def plan(bundle: BundleMount | None, *images: str, **table: object) -> None:
    spec = SandboxSpec.model_validate({"backend": "e2b", "e2b": table})
    needs = SandboxNeeds(list(images), acts=True, solves=True, grading_network=True, timeout_s=60, bundle=bundle)
    ready(spec, needs)


def begin(lab: E2BLab, image: str, bundle: BundleMount | None, **table: object) -> Sandbox:
    """A sandbox as a unit has it: made, then given what it lacks of the agent's files."""
    backend = lab.connect(**table)
    request = SandboxRequest(f"sb-{len(lab.sandboxes)}", image, 60, network=False, bundle=bundle)
    box = backend.create(request)
    lab.sandboxes.append(box)
    upload_bundle(box, request)
    return box


def template_used(lab: E2BLab) -> str:
    return str(lab.server.control.creates[-1]["templateID"])


def uploads_into_sandboxes(lab: E2BLab) -> int:
    """How many there were of the agent's files."""
    return sum(size > NOISE for size in lab.server.writes)


def test_template_holds_the_agent_files(lab: E2BLab, bundle: BundleMount) -> None:
    plan(bundle, IMAGE)
    box = begin(lab, IMAGE, bundle)
    assert template_used(lab) == template_name(IMAGE, bundle=bundle.digest)
    assert says(box, f"{PLACE}/go lib/data | cmp - {PLACE}/link && ls -A {PLACE}").split() == [
        "go",
        "lib",
        "link",
        "noise",
    ]
    assert says(box, f"cd {PLACE} && stat -c %A . go lib lib/data link").split() == [
        "dr-xr-xr-x",
        "-r-xr-xr-x",
        "dr-xr-xr-x",
        "-r--r--r--",
        "lrwxrwxrwx",
    ]
    assert says(box, "cat /opt/swe-argo/.digest hello.txt") == f"{bundle.digest}hello\n"
    assert says(box, "ls /opt/swe-argo") == "agent\n"
    assert uploads_into_sandboxes(lab) == 0


def test_grading_template_has_no_agent(lab: E2BLab, bundle: BundleMount) -> None:
    plan(bundle, OTHER)
    assert set(list_templates()) == {
        template_name(IMAGE),
        template_name(OTHER),
        template_name(OTHER, bundle=bundle.digest),
    }
    assert says(begin(lab, OTHER, None), "ls /opt") == ""
    assert template_used(lab) == template_name(OTHER)


def test_two_templates_cost_one_upload(lab: E2BLab, bundle: BundleMount) -> None:
    plan(bundle, IMAGE, OTHER)
    plan(bundle, IMAGE, OTHER)
    assert lab.server.control.templates.uploads == 1
    assert [build.name for build in lab.server.control.templates.builds] == [
        template_name(OTHER),
        template_name(IMAGE, bundle=bundle.digest),
        template_name(OTHER, bundle=bundle.digest),
    ]
    assert says(begin(lab, OTHER, bundle), f"{PLACE}/go link | wc -c") == f"{256 * 8192}\n"
    assert uploads_into_sandboxes(lab) == 0


def test_agent_version_has_own_template(lab: E2BLab, bundle: BundleMount, tmp_path: Path) -> None:
    newer = changed(bundle, tmp_path / "newer" / "bundle")
    for version in (bundle, newer):
        plan(version, IMAGE)
    assert lab.server.control.templates.uploads == 2
    assert says(begin(lab, IMAGE, newer), f"tail -n 1 {PLACE}/go") == "# newer\n"
    assert "newer" not in says(begin(lab, IMAGE, bundle), f"cat {PLACE}/go")
    assert uploads_into_sandboxes(lab) == 0


def test_equal_files_are_uploaded_once(lab: E2BLab, bundle: BundleMount, tmp_path: Path) -> None:
    """As another machine has them, or this one after its cache was removed."""
    plan(bundle, IMAGE)
    assert bundle.folder is not None
    elsewhere = tmp_path / "elsewhere" / "bundle"
    shutil.copytree(bundle.folder, elsewhere, symlinks=True)
    plan(replace(bundle, folder=elsewhere), OTHER)
    assert lab.server.control.templates.uploads == 1


def test_no_agent_builds_plain_templates(lab: E2BLab) -> None:
    plan(None, IMAGE, OTHER)
    (build,) = lab.server.control.templates.builds
    assert (build.name, build.steps) == (template_name(OTHER), [])
    assert lab.server.control.templates.uploads == 0


def test_mapped_template_needs_uploads(lab: E2BLab, bundle: BundleMount, tmp_path: Path) -> None:
    file = tmp_path / "templates.json"
    file.write_text(f'{{"{OTHER}": "{template_name(IMAGE)}"}}')
    plan(bundle, OTHER, templates=str(file))
    assert lab.server.control.templates.builds == []
    for _ in range(2):
        box = begin(lab, OTHER, bundle, templates=str(file))
        assert template_used(lab) == template_name(IMAGE)
        assert says(box, f"{PLACE}/go link | wc -c") == f"{256 * 8192}\n"
    assert uploads_into_sandboxes(lab) == 2


def test_template_outlives_local_files(lab: E2BLab, bundle: BundleMount) -> None:
    gone = replace(bundle, folder=None)
    with pytest.raises(ConfigError, match=f"no agent files {bundle.digest}: run swe-argo agents build"):
        plan(gone, IMAGE)
    plan(bundle, IMAGE)
    plan(gone, IMAGE)
    assert says(begin(lab, IMAGE, gone), f"{PLACE}/go link | wc -c") == f"{256 * 8192}\n"


def test_error_names_missing_template(lab: E2BLab, bundle: BundleMount) -> None:
    lacking = r"1 of 1 images have no template at E2B with the agent's files \(first: swe-argo-.*templates"
    with pytest.raises(ConfigError, match=lacking):
        plan(bundle, IMAGE, build_templates=False)
    assert lab.server.control.templates.builds == []


def test_broken_upload_is_retried(lab: E2BLab, bundle: BundleMount) -> None:
    lab.server.faults.refused_uploads = 1
    plan(bundle, IMAGE)
    assert says(begin(lab, IMAGE, bundle), f"{PLACE}/go link | wc -c") == f"{256 * 8192}\n"
    assert uploads_into_sandboxes(lab) == 0


def test_failed_upload_is_reported(lab: E2BLab, bundle: BundleMount) -> None:
    lab.server.faults.refused_uploads = 1000
    with pytest.raises(ConfigError, match=rf"could not build 1 of 1 templates.*{IMAGE}.*Failed to upload file"):
        plan(bundle, IMAGE)
    assert template_name(IMAGE, bundle=bundle.digest) not in lab.server.machines.templates


def test_upload_may_exceed_request_limit(lab: E2BLab, bundle: BundleMount, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.server.faults.upload_seconds = 5.0  # the SDK lets a transfer take twice what a request may
    monkeypatch.setenv("E2B_CONNECTION_TIMEOUT", "2")
    settings.cache_clear()
    plan(bundle, IMAGE)
    assert (lab.server.control.templates.uploads, len(lab.server.control.templates.builds)) == (1, 1)
