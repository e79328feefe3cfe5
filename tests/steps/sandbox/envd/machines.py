"""The machines of the test server: a folder image as template, a sandbox of backend local as machine."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from swe_argo.steps.sandbox.local import bubblewrap
from swe_argo.steps.sandbox.local.backend import LocalBackend
from swe_argo.steps.sandbox.local.images import image_folder
from swe_argo.steps.sandbox.local.sandbox import LocalSandbox
from swe_argo.steps.sandbox.protocol import Sandbox, SandboxRequest


@dataclass
class RemoteMachine:
    box: Sandbox
    template: str
    timeout_s: float
    metadata: dict[str, str]
    network: bool
    number: str = field(default_factory=lambda: "i" + uuid.uuid4().hex[:19])
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.time)
    granted: dict[str, float] = field(default_factory=dict)
    """Further tokens -> until when they are taken."""

    @property
    def ends(self) -> float:
        return self.began + self.timeout_s

    def takes_token(self, token: str) -> bool:
        return token == self.token or self.granted.get(token, 0.0) > time.time()


_OTHERS = "opt"
"""What a snapshot of a machine has beside its repository."""


class Machines:
    """``templates``: name -> the folder image that it holds."""

    def __init__(self, images: Path, templates: dict[str, str]) -> None:
        self.images = images
        self.templates = templates
        self.isolated = bubblewrap.probe() is None
        self._backend = LocalBackend(images, isolated=self.isolated)
        self._running: dict[str, RemoteMachine] = {}
        self._lock = threading.Lock()

    def create(self, template: str, timeout_s: float, metadata: dict[str, str], *, network: bool) -> RemoteMachine:
        box = self.make_box(self.templates[template], timeout_s + 60, network=network)
        machine = RemoteMachine(box, template, timeout_s, metadata, network)
        with self._lock:
            self._running[machine.number] = machine
        timer = threading.Timer(timeout_s, self.kill, [machine.number])
        timer.daemon = True
        timer.start()
        return machine

    def make_box(self, image: str, life_s: float, *, network: bool) -> LocalSandbox:
        """A machine that nobody knows yet, of a folder image with all that it has."""
        request = SandboxRequest(f"remote-{uuid.uuid4().hex}", image, life_s, network=network)
        box = self._backend.create(request)
        assert isinstance(box, LocalSandbox)
        if (folder := image_folder(self.images, image) / _OTHERS).is_dir():
            subprocess.run(["cp", "-a", str(folder), str(box.root)], check=True)
        return box

    def keep_box(self, box: LocalSandbox) -> str:
        """The folder image of what a machine has by now."""
        image = f"snapshot-{uuid.uuid4().hex}"
        folder = self._backend.images / image
        folder.mkdir(parents=True)
        for name in ("testbed", _OTHERS):
            if (box.root / name).is_dir():
                subprocess.run(["cp", "-a", str(box.root / name), str(folder)], check=True)
        return image

    def destroy_box(self, box: LocalSandbox) -> None:
        self._backend.destroy(box)

    def snapshot(self, number: str, name: str) -> bool:
        """Keep the folders of a machine as a template."""
        machine = self.find(number)
        if machine is None:
            return False
        assert isinstance(machine.box, LocalSandbox)
        image = self.keep_box(machine.box)
        with self._lock:
            self.templates[name] = image
        return True

    def find(self, number: str) -> RemoteMachine | None:
        with self._lock:
            return self._running.get(number)

    def list_all(self) -> list[RemoteMachine]:
        with self._lock:
            return list(self._running.values())

    def kill(self, number: str) -> bool:
        with self._lock:
            machine = self._running.pop(number, None)
        if machine is None:
            return False
        self._backend.destroy(machine.box)
        return True

    def close(self) -> None:
        for machine in self.list_all():
            self.kill(machine.number)
