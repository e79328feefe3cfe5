"""Layers of machines whose tools are busybox', as in images of alpine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_argo.steps.contracts.sandbox_spec import SandboxSpec
from swe_argo.steps.layers.archive import read_content
from swe_argo.steps.layers.lay import lay
from swe_argo.steps.layers.listing import record
from swe_argo.steps.layers.take import TakenLayer, take
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest
from swe_argo.steps.sandbox.untrusted import as_untrusted
from tests.base_image import busybox_image

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.docker

MAKE = r"""
mkdir -p /opt /srv /home /testbed/data/old /testbed/data/turns; cd /testbed/data
for each in keep edit gone old/inner turns/x; do echo before >$each; done
ln -s keep link; touch -d '2020-01-01 00:00:00' *
"""
WORK = r"""
cd /testbed/data
echo after! >edit; touch -d '2020-01-01 00:00:00' edit
rm -r gone old
chmod 4711 keep
rm -r turns && echo 'a file now' >turns
ln -sfn edit link
mkdir -m 1770 'new dir' && printf 'x\0y' >'new dir/$odd "name"'
ln 'new dir/'* /home/second-name
mkfifo /opt/pipe; mkdir /srv/empty
echo 1 >'/opt/back\slash'; echo 2 >/opt/-dash; echo 3 >/opt/é; ln -s /etc/passwd /opt/absolute
for i in $(seq 3000); do echo $i >/srv/empty/a-name-that-takes-some-of-the-room-that-arguments-have-$i; done
"""
LOOK = r"""
cd /; find testbed home opt srv | sort | while IFS= read -r each; do stat -c '%N %F %a %u' "$each"; done
cat testbed/data/edit testbed/data/turns testbed/data/'new dir'/* srv/empty/*-3000; stat -c %Y testbed/data/edit
ls -A /var/tmp
"""


@pytest.fixture
def new_machine(docker_client: DockerClient, docker_host: None) -> Iterator[Callable[[], Sandbox]]:
    from swe_argo.steps.sandbox.docker.backend import connect

    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox here")
    backend, image = connect(SandboxSpec(backend="docker")), busybox_image(docker_client, Path(busybox))
    with ExitStack() as stack:

        def new() -> Sandbox:
            names.append(f"sb-busybox-{id(stack):x}-{len(names)}")
            request = SandboxRequest(name=names[-1], image=image, deadline_s=600, network=False, isolated=True)
            box = backend.create(request)
            stack.callback(backend.destroy, box)
            assert box.exec(MAKE, timeout_s=60, cwd="/").exit_code == 0
            return box

        names: list[str] = []
        yield new


def test_layer_works_with_busybox(new_machine: Callable[[], Sandbox]) -> None:
    box = new_machine()
    before = record(box)
    assert take(as_untrusted(box), before) == TakenLayer(b"")
    result = box.exec(WORK, timeout_s=120, merge=True)
    assert result.exit_code == 0, result.stdout
    layer = take(as_untrusted(box), before)
    assert layer.note == ""
    content = read_content(layer.data)
    assert sorted(content.deleted) == [
        *(b"/testbed/data/gone", b"/testbed/data/old", b"/testbed/data/turns", b"/testbed/data/turns/x")
    ]
    fresh = new_machine()
    assert lay(fresh, layer.data, keep_out=()).output == ""
    assert fresh.exec(LOOK, timeout_s=60, merge=True).stdout == box.exec(LOOK, timeout_s=60, merge=True).stdout
