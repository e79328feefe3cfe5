"""Layers of containers of a real engine: owners, replaced tools, busybox' tools, an image without what is needed."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.layers.archive import read_content
from swe_argo.steps.layers.changes import apply_layer, create_layer
from swe_argo.steps.layers.listing import Listing, list_machine
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from tests.base_image import base_image, busybox_image
from tests.steps.layers.test_changes import DELETED, LOOK, MAKE, WORK

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker


NewContainer = Callable[..., Sandbox]


@pytest.fixture
def new_container(docker_client: DockerClient, docker_host: None) -> Iterator[NewContainer]:
    from swe_argo.steps.sandbox.docker.backend import DockerBackend

    backend, base = DockerBackend.connect(SandboxSpec(backend="docker")), base_image(docker_client)
    names: list[str] = []
    with ExitStack() as stack:

        def new(image: str = base) -> Sandbox:
            names.append(f"sb-layer-{id(stack):x}-{len(names)}")
            request = SandboxRequest(name=names[-1], image=image, deadline_s=600, network=False, isolated=True)
            box = backend.create(request)
            stack.callback(backend.destroy, box)
            return box

        yield new


def sh(box: Sandbox, script: str) -> bytes:
    """Run a script in the root folder, which must succeed; return its output."""
    result = box.exec(script, timeout_s=120, cwd="/", merge=True)
    assert result.exit_code == 0, result.stdout
    return result.stdout


def is_unchanged(box: Sandbox, before: Listing) -> bool:
    summary = create_layer(as_untrusted(box), before).summary
    return summary is not None and summary.is_empty


def test_layer_keeps_owners_and_modes(new_container: NewContainer) -> None:
    box = new_container()
    before = list_machine(box)
    assert is_unchanged(box, before)
    sh(box, "mkdir /app && echo x >/app/x && chown -R 1234:4321 /app && chmod 640 /app/x && rm /usr/bin/seq")
    sh(box, "cp /bin/true /app/n && mv /app/n /usr/bin/id")
    layer = create_layer(as_untrusted(box), before)
    content = read_content(layer.data)
    assert (content.deleted, content.replaced) == ([b"/usr/bin/seq"], {b"/usr/bin/id"})
    fresh = new_container()
    assert apply_layer(fresh, layer.data, keep_out=()).output == ""
    look = "stat -c '%a %u %g %n' /app /app/x; id; ls /usr/bin/seq 2>/dev/null; echo; ls /var/tmp"
    assert sh(fresh, look) == b"755 1234 4321 /app\n640 1234 4321 /app/x\n\n"


MORE_WORK = r"""
echo 1 >'/opt/back\slash'; echo 2 >/opt/-dash; echo 3 >/opt/é
for i in $(seq 3000); do echo $i >/srv/empty/a-name-that-takes-some-of-the-room-that-arguments-have-$i; done
"""


def test_layer_works_with_busybox(new_container: NewContainer, docker_client: DockerClient) -> None:
    """Replace the machine's tools by busybox, as in Alpine images."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox here")
    image = busybox_image(docker_client, Path(busybox))
    box, fresh = new_container(image), new_container(image)
    for each_box in (box, fresh):
        sh(each_box, MAKE)
    before = list_machine(box)
    assert is_unchanged(box, before)
    sh(box, WORK + MORE_WORK)
    layer = create_layer(as_untrusted(box), before)
    assert layer.note == ""
    assert sorted(read_content(layer.data).deleted) == DELETED
    assert apply_layer(fresh, layer.data, keep_out=()).output == ""
    look = f"{LOOK}; cat /srv/empty/*-3000"
    assert sh(fresh, look) == sh(box, look)


FAILED = "the machine's changes could not be collected: "
NONSENSE = r"printf 'nonsense\0d,755 0 0 1 1 1 /../x\0f,644 0 0 9999999999999 1 1 /opt/x\0'"
ROOT_ONLY = r"case $* in *maxdepth*) ;; *) printf 'd,755 0 0 1 1 1 /\0f,644 0 0 9 1 1 /opt/x\0' ;; esac"


@pytest.mark.parametrize(
    ("program", "body", "reason"),
    [
        ("find", "exit 3", f"{FAILED}exit code 0"),
        ("find", NONSENSE, f"{FAILED}exit code 0"),
        ("find", ROOT_ONLY, ""),
        ("tar", "head -c 100000 /dev/urandom", FAILED),
        ("tar", "exit 1", FAILED),
        ("gzip", "exit 1", f"{FAILED}exit code 0"),
        ("gzip", "head -c 9000000 /dev/zero | /usr/bin/gzip.real -1", FAILED),
    ],
)
@pytest.mark.long
def test_replaced_tools_lose_the_layer(new_container: NewContainer, program: str, body: str, reason: str) -> None:
    box = new_container()
    before = list_machine(box)
    box.write("/opt/tool", f"#!/bin/sh\n{body}\n".encode())
    sh(box, f"echo x >/opt/x; p=$(command -v {program}); mv $p $p.real; cp /opt/tool $p; chmod 755 $p")
    layer = create_layer(as_untrusted(box), before)
    if reason:
        assert layer.data == b""
        assert layer.note.startswith(reason)
    else:
        with suppress(SandboxBroken):  # where everything is deleted
            apply_layer(as_untrusted(new_container()), layer.data, keep_out=("/tests",))


def test_forged_find_paths_are_ignored(new_container: NewContainer) -> None:
    box = new_container()
    before = list_machine(box)
    listed = ("d,755 0 0 1 1 1 /", "d,755 0 0 1 1 1 /opt", "f,644 0 0 2 1 1 /opt/x", "f,755 0 0 2 1 1 /bin/sed")
    forged = ("d,755 0 0 1 1 1 /proc", "f,644 0 0 2 1 1 /proc/self/root/tests/t", "f,644 0 0 2 1 1 /opt/x/y")
    lines = " ".join(f"'{line}'" for line in (*listed, *forged))
    box.write("/opt/tool", f"#!/bin/sh\n[ $2 = -maxdepth ] || printf '%s\\0' {lines}\n".encode())
    sh(box, "mkdir /tests; echo x | tee /opt/x >/tests/t; f=$(command -v find); cp /opt/tool $f; chmod 755 $f")
    layer = create_layer(as_untrusted(box), before)
    assert read_content(layer.data).changed.keys() - {b"/opt"} == {b"/opt/x"}


def test_image_without_tar_is_refused(new_container: NewContainer) -> None:
    box = new_container()
    sh(box, "rm $(command -v tar)")
    with pytest.raises(ConfigError, match="lacks tar, needed to collect changed files"):
        list_machine(box)


def image_with_volumes(client: DockerClient) -> str:
    lines = f"FROM {base_image(client)}\nCOPY keep /data/keep\nVOLUME /data /srv/with\\ blank /empty\n"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, content in {"Dockerfile": lines, "keep": "image\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    context.seek(0)
    name = "swe-argo-test-volumes:latest"
    client.images.build(fileobj=context, custom_context=True, tag=name, rm=True, forcerm=True)
    return name


def test_layer_includes_image_volumes(new_container: NewContainer, docker_client: DockerClient) -> None:
    image = image_with_volumes(docker_client)
    box = new_container(image)
    before = list_machine(box)
    assert is_unchanged(box, before)
    assert b"/etc/hosts" in before.mounts, "a single file cannot be laid"
    sh(box, "rm /data/keep; echo new >/data/new; mkdir /empty/x; echo y >/empty/x/y; echo other >>/etc/hosts")
    layer = create_layer(as_untrusted(box), before)
    content = read_content(layer.data)
    assert content.deleted == [b"/data/keep"]
    assert {path for path, kind in content.changed.items() if kind == tarfile.REGTYPE} == {b"/data/new", b"/empty/x/y"}
    fresh = new_container(image)
    assert sh(fresh, "cat /data/keep") == b"image\n"
    assert apply_layer(fresh, layer.data, keep_out=()).output == ""
    assert sh(fresh, "cat /data/* /empty/x/y") == b"new\ny\n"
