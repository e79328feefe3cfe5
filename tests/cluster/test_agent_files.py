"""An agent's files in pods, from a registry of this machine: by a volume of their image, and by a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from swe_argo.steps.agents.gateway.frames import Ended
from swe_argo.steps.bundles.build import architecture_here
from swe_argo.steps.contracts.failure import FailureClass
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.gateway.binary import ARCHITECTURES, find_gateway
from swe_argo.steps.sandbox.protocol import BundleMount
from tests.cluster.agent_images import AgentRegistry, agent_registry, push
from tests.cluster.lab import KubernetesLab
from tests.steps.agents.gateway.agents import drive, open_gateway, printed
from tests.steps.gateway.toolchain import needs_go
from tests.steps.sandbox.mounted_bundles import PLACE, assert_mounted, make_bundle

pytestmark = [pytest.mark.cluster, pytest.mark.slow, needs_go]

WAYS = ("image-volume", "copy")


@dataclass(frozen=True)
class Agent:
    """An agent's files, and their image."""

    registry: AgentRegistry
    files: BundleMount

    @property
    def mount(self) -> BundleMount:
        return self.files

    def pushed(self, name: str, copier: bytes | None = None) -> BundleMount:
        """The same files in another image."""
        assert self.files.folder is not None
        image = push(self.registry, name, self.files.folder, self.files.digest, copier)
        return BundleMount(self.files.digest, None, image)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    bundle = make_bundle(folder / "files")
    with agent_registry(folder) as registry:
        assert bundle.folder is not None
        image = push(registry, "agent", bundle.folder, bundle.digest)
        yield Agent(registry, BundleMount(bundle.digest, bundle.folder, image))


@pytest.mark.parametrize("way", WAYS)
def test_agent_files_are_read_only(lab: KubernetesLab, agent: Agent, way: str) -> None:
    box = lab.make(lab.backend(agentFiles=way), bundle=agent.mount)
    assert_mounted(box)
    spec = lab.pod(box.transport.name)["spec"]
    assert bool(spec.get("initContainers")) is (way == "copy")
    listed = box.exec(f"ls -A {PLACE}", timeout_s=20).stdout.split()
    assert [name for name in listed if name != b".swe-argo"] == [b"go", b"lib", b"link"]


def test_image_volume_is_preferred(lab: KubernetesLab, agent: Agent) -> None:
    backend = lab.backend()
    for _ in range(2):
        box = lab.make(backend, bundle=agent.mount, isolated=True)
        assert_mounted(box)
        assert "initContainers" not in lab.pod(box.transport.name)["spec"]


@pytest.mark.parametrize("way", WAYS)
def test_agent_runs_behind_the_gateway(lab: KubernetesLab, agent: Agent, way: str) -> None:
    box = lab.make(lab.backend(agentFiles=way), bundle=agent.mount)
    with open_gateway(box, f"{PLACE}/go lib/data | wc -c; ask POST /v1/messages hello") as gateway:
        events = drive(gateway)
    assert printed(events) == b"2097152\n200 <hello>\n"
    assert events[-1] == Ended(0)


@pytest.mark.parametrize("way", WAYS)
def test_missing_agent_image_is_refused(lab: KubernetesLab, agent: Agent, way: str) -> None:
    missing = f"{agent.registry.address}/agent@sha256:{'0' * 64}"
    with pytest.raises(ConfigError, match=f"image {missing} does not exist") as caught:
        lab.make(lab.backend(agentFiles=way), bundle=BundleMount("sha256:0", None, missing))
    assert caught.value.failure_class is FailureClass.IMAGE_MISSING


@pytest.mark.parametrize("way", WAYS)
def test_absent_registry_is_infra_error(lab: KubernetesLab, way: str) -> None:
    image = f"127.0.0.1:1/agent@sha256:{'1' * 64}"
    with pytest.raises(InfraError, match=f"pulling {image} failed") as caught:
        lab.make(lab.backend(agentFiles=way, pendingSeconds=30), bundle=BundleMount("sha256:1", None, image))
    assert caught.value.failure_class is FailureClass.IMAGE_PULL


def test_other_processor_is_refused(lab: KubernetesLab, agent: Agent) -> None:
    [other] = set(ARCHITECTURES) - {architecture_here()}
    with pytest.raises(ConfigError, match="is for another CPU architecture") as caught:
        lab.make(lab.backend(agentFiles="copy"), bundle=agent.pushed("other", find_gateway(other)))
    assert caught.value.field == "agent.image"


def test_image_without_copier_is_refused(lab: KubernetesLab, agent: Agent, tmp_path: Path) -> None:
    image = f"{agent.registry.address}/plain@{agent.registry.registry.add('plain', _plain_layer(tmp_path))}"
    plain = BundleMount("sha256:2", None, image)
    with pytest.raises(ConfigError, match=r"has no copy program.*swe-argo agents push"):
        lab.make(lab.backend(agentFiles="copy"), bundle=plain)
    box = lab.make(lab.backend(agentFiles="image-volume"), bundle=plain)
    assert box.read(f"{PLACE}/mine") == b"own\n"


def _plain_layer(folder: Path) -> bytes:
    import io
    import tarfile

    (folder / "mine").write_text("own\n")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(folder / "mine", "mine")
    return layer.getvalue()
