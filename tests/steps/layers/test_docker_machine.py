"""Layers of containers of a real engine: owners, replaced tools, an image without what is needed."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.layers.archive import read_content
from swe_argo.steps.layers.lay import lay
from swe_argo.steps.layers.listing import record
from swe_argo.steps.layers.take import TakenLayer, take
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from swe_argo.steps.sandbox.untrusted import SandboxBroken, as_untrusted
from tests.base_image import base_image

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker


NewContainer = Callable[..., Sandbox]


@pytest.fixture
def new_container(docker_client: DockerClient, docker_host: None) -> Iterator[NewContainer]:
    from swe_argo.steps.sandbox.docker.backend import connect

    backend, base = connect(SandboxSpec(backend="docker")), base_image(docker_client)
    with ExitStack() as stack:

        def new(image: str = base) -> Sandbox:
            number = len(numbers)
            numbers.append(number)
            name = f"sb-layer-{id(stack):x}-{number}"
            request = SandboxRequest(name=name, image=image, deadline_s=600, network=False, isolated=True)
            box = backend.create(request)
            stack.callback(backend.destroy, box)
            return box

        numbers: list[int] = []
        yield new


def test_layer_keeps_owners_and_modes(new_container: NewContainer) -> None:
    box = new_container()
    before = record(box)
    assert take(as_untrusted(box), before) == TakenLayer(b"")
    script = (
        "mkdir /app && echo x >/app/x && chown -R 1234:4321 /app && chmod 640 /app/x && rm /usr/bin/seq && "
        "cp /bin/true /app/n && mv /app/n /usr/bin/id"
    )
    execution = box.exec(script, timeout_s=60, cwd="/", merge=True)
    assert execution.exit_code == 0, execution.stdout
    layer = take(as_untrusted(box), before)
    content = read_content(layer.data)
    assert content.deleted == [b"/usr/bin/seq"]
    assert content.replaced == {b"/usr/bin/id"}
    fresh = new_container()
    assert lay(fresh, layer.data, keep_out=()).output == ""
    look = "stat -c '%a %u %g %n' /app /app/x; id; ls /usr/bin/seq; echo; ls /var/tmp"
    result = fresh.exec(look, timeout_s=60, cwd="/")
    assert result.stdout == b"755 1234 4321 /app\n640 1234 4321 /app/x\n\n"


@pytest.mark.parametrize(
    ("program", "body", "reason"),
    [
        ("find", "exit 3", "the machine's changes could not be collected: exit code 0"),
        (
            "find",
            r"printf 'nonsense\0d,755 0 0 1 1 1 /../x\0f,644 0 0 9999999999999 1 1 /opt/x\0'",
            "the machine's changes could not be collected: exit code 0",
        ),
        ("find", r"case $* in *maxdepth*) ;; *) printf 'd,755 0 0 1 1 1 /\0f,644 0 0 9 1 1 /opt/x\0' ;; esac", ""),
        ("tar", "head -c 100000 /dev/urandom", "the machine's changes could not be collected: "),
        ("tar", "exit 1", "the machine's changes could not be collected: "),
        ("gzip", "exit 1", "the machine's changes could not be collected: exit code 0"),
        ("gzip", "head -c 9000000 /dev/zero | /usr/bin/gzip.real -1", "the machine's changes could not be collected: "),
    ],
)
@pytest.mark.long
def test_replaced_tools_lose_the_layer(new_container: NewContainer, program: str, body: str, reason: str) -> None:
    box = new_container()
    before = record(box)
    box.write("/opt/tool", f"#!/bin/sh\n{body}\n".encode())
    script = f"echo x >/opt/x; p=$(command -v {program}); mv $p $p.real; cp /opt/tool $p; chmod 755 $p"
    assert box.exec(script, timeout_s=60, cwd="/").exit_code == 0
    layer = take(as_untrusted(box), before)
    if reason:
        assert layer.data == b""
        assert layer.note.startswith(reason)
    else:
        with suppress(SandboxBroken):  # where everything is deleted
            lay(as_untrusted(new_container()), layer.data, keep_out=("/tests",))


def test_forged_find_paths_are_ignored(new_container: NewContainer) -> None:
    box = new_container()
    before = record(box)
    listed = ("d,755 0 0 1 1 1 /", "d,755 0 0 1 1 1 /opt", "f,644 0 0 2 1 1 /opt/x", "f,755 0 0 2 1 1 /bin/sed")
    forged = ("d,755 0 0 1 1 1 /proc", "f,644 0 0 2 1 1 /proc/self/root/tests/t", "f,644 0 0 2 1 1 /opt/x/y")
    lines = " ".join(f"'{line}'" for line in (*listed, *forged))
    box.write("/opt/tool", f"#!/bin/sh\n[ $2 = -maxdepth ] || printf '%s\\0' {lines}\n".encode())
    script = "mkdir /tests; echo x | tee /opt/x >/tests/t; f=$(command -v find); cp /opt/tool $f; chmod 755 $f"
    assert box.exec(script, timeout_s=60, cwd="/").exit_code == 0
    layer = take(as_untrusted(box), before)
    assert read_content(layer.data).changed.keys() - {b"/opt"} == {b"/opt/x"}


def test_image_without_tar_is_refused(new_container: NewContainer) -> None:
    box = new_container()
    box.exec("rm $(command -v tar)", timeout_s=60, cwd="/")
    with pytest.raises(ConfigError, match="lacks tar, needed to collect changed files"):
        record(box)


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
    before = record(box)
    assert take(as_untrusted(box), before) == TakenLayer(b"")
    assert b"/etc/hosts" in before.mounts, "a single file cannot be laid"
    script = "rm /data/keep; echo new >/data/new; mkdir /empty/x; echo y >/empty/x/y; echo other >>/etc/hosts"
    assert box.exec(script, timeout_s=60, cwd="/").exit_code == 0
    layer = take(as_untrusted(box), before)
    content = read_content(layer.data)
    assert content.deleted == [b"/data/keep"]
    assert {path for path, kind in content.changed.items() if kind == tarfile.REGTYPE} == {b"/data/new", b"/empty/x/y"}
    fresh = new_container(image)
    assert fresh.exec("cat /data/keep", timeout_s=60, cwd="/").stdout == b"image\n"
    assert lay(fresh, layer.data, keep_out=()).output == ""
    assert fresh.exec("cat /data/* /empty/x/y", timeout_s=60, cwd="/").stdout == b"new\ny\n"
