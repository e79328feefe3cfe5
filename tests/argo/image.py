"""The image of the steps for a node without a registry: this machine's Python, needed packages, this checkout."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution, version
from pathlib import Path

import certifi
from packaging.requirements import Requirement

from cluster.local.mkimage import Image, write_images
from swe_argo.steps.gateway.binary import ship
from tests.base_image import SETTINGS, _add_bytes, _as_root, _canonical, _everything, _libraries, _tar
from tests.cluster.real_cluster import Cluster
from tests.paths import ROOT

REPOSITORY, TAG = "localhost/swe-argo-test-pipeline", hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
"""A tag for each checkout: tests of several may share a node."""
PACKAGES = ("kubernetes", "websocket-client", "boto3", "jinja2", "pyarrow", "openai", "mini-swe-agent", "e2b")
"""What the extras of pyproject.toml that run on a cluster ask for, but for hubs: ``mini`` comes with the steps."""
OF_MINI_SWE_AGENT = ("python-dotenv", "platformdirs", "rich")
"""What of its own requirements its agent needs; the rest is for models and screens of its own."""
TINKER = (
    *("tinker", "anyio", "click", "distro", "httpx", "h2", "hpack", "hyperframe", "numpy", "orjson", "protobuf"),
    *("pyqwest", "rich", "sniffio", "zstandard"),
)
"""Its SDK with what it needs to learn; transformers is for tokenizers of its own."""
UNUSED = {"swebench", "mini-swe-agent", "tinker"}
"""Packages whose own requirements only other parts of them need (pyproject.toml says so too)."""
PYTHONPATH = "/app:/app/packages"
OWN = "opt/agents"
"""Where docs/add-an-agent.md puts an agent of one's own."""
LEFT_OUT = ("kubernetes/aio/", "pyarrow/include/", "pyarrow/tests/", "pyarrow/src/")
BOTO_DATA = "botocore/data/"
"""A folder for every service of AWS; here one of them is used."""


def load_pipeline_image(
    cluster: Cluster, *, tag: str = TAG, own: dict[str, Path] | None = None, more: Sequence[str] = ()
) -> None:
    """Put the image on the node, with the steps as they are now; layers that are there already cost nothing.

    ``own``: what one more layer adds below ``OWN``, from where Python imports it: an image that is made FROM ours.
    ``more``: packages beside those of the steps.
    """
    if shutil.which("go"):
        ship()
    variables = [line.removeprefix("ENV ") for line in SETTINGS if line.startswith("ENV ")]
    python_path = f"{PYTHONPATH}:/{OWN}" if own else PYTHONPATH
    config: dict[str, object] = {
        "Env": [*variables, f"PYTHONPATH={python_path}", "PYTHONDONTWRITEBYTECODE=1"],
        "WorkingDir": "/tmp",
    }
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "swe-argo-test-pipeline.tar")
        layers = [_tar(dict(_everything())), _layer(dict(_packages(more))), _layer(dict(_project()), _texts())]
        if own:
            layers.append(_layer({f"{OWN}/{name}": path for name, path in own.items()}))
        write_images(archive, [Image(f"{REPOSITORY}:{tag}", layers, config)])
        cluster.load(archive)


def _packages(more: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """Path in the image -> file of this machine."""
    binaries = []
    for name in sorted(_required_distributions("swe-argo", *PACKAGES, *OF_MINI_SWE_AGENT, *more)):
        package = distribution(name)
        for file in package.files or ():
            path = Path(str(package.locate_file(file))).resolve()
            if ".." not in file.parts and _is_included(str(file)) and path.is_file():
                yield f"app/packages/{file}", path
                binaries += [path] if ".so" in path.suffixes else []
    # As in every image of Debian's Python: a client of E2B is not even made without.
    yield "etc/ssl/certs/ca-certificates.crt", Path(certifi.where())
    for library in _libraries(binaries):
        if "site-packages" not in str(library):
            yield _canonical(str(library)), library.resolve()  # by the name it is asked for


def _required_distributions(*names: str) -> set[str]:
    """Installed distributions that these require, and theirs; the first one is itself not among them."""
    required, waiting = {*names[1:]}, [*names]
    while waiting:
        name = waiting.pop()
        if name in UNUSED:
            continue
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            key = requirement.name.lower().replace("_", "-")
            if key not in required and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                required.add(key)
                waiting.append(key)
    return required


def _is_included(file: str) -> bool:
    if "__pycache__" in file or file.startswith(LEFT_OUT):
        return False
    service, folder, _ = file.removeprefix(BOTO_DATA).partition("/")
    return not (file.startswith(BOTO_DATA) and folder) or service == "s3"


def _project() -> Iterator[tuple[str, Path]]:
    for folder in ("steps", "templates"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"app/swe_argo/{path.relative_to(ROOT)}", path


def _texts() -> dict[str, str]:
    """The steps ask for the version of the installed project."""
    number = version("swe-argo")
    return {f"app/swe_argo-{number}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: swe-argo\nVersion: {number}\n"}


def _layer(files: dict[str, Path], texts: dict[str, str] | None = None) -> bytes:
    """Same files, same bytes: a layer with another digest would be unpacked again."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, source in sorted(files.items()):
            tar.add(source, name, recursive=False, filter=_readable)
        for name, text in (texts or {}).items():
            _add_bytes(tar, name, text)
        python = tarfile.TarInfo("usr/local/bin/python")
        python.type, python.linkname = tarfile.SYMTYPE, "/usr/bin/python3"
        tar.addfile(python)
    return data.getvalue()


def _readable(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """By any user: the steps run as nobody in particular."""
    info.mode |= 0o444
    info.mtime = 0
    return _as_root(info)
