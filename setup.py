"""The folders of the checkout as parts of one package, ``swe_argo``, with the model gateway compiled."""

import runpy
import shutil
import subprocess
import sys

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

FOLDERS = {
    "swe_argo": "workflows/python/swe_argo",
    "swe_argo.steps": "steps",
    "swe_argo.workflows": "workflows",
    "swe_argo.templates": "templates",
    "swe_argo.templates.chart": "charts/swe-argo",  # `swe-argo chart` prints its path
    "swe_argo_verifiers": "workflows/python/swe_argo_verifiers",
}
"""Package -> its folder. Folders of data inside them count as packages, too: setuptools installs no others."""
LEFT_OUT = {
    "swe_argo.workflows": ["python*"],
    "swe_argo.templates": ["argo*"],  # a link into the chart
}


def compile_gateway() -> None:
    """Compile the model gateway unless its programs are there: installing a wheel or an sdist needs no Go."""
    compiler = runpy.run_path("steps/gateway/binary.py")
    if compiler["is_shipped"]():
        return
    sys.stderr.write("building the model gateway of agent programs with Go (once in a checkout, a minute)\n")
    try:
        compiler["compile_shipped"]("go")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        sys.exit(
            f"the model gateway was not built: {reason}\ninstall Go 1.24 or newer, or first run "
            ".venv/bin/python -m swe_argo.steps.gateway.binary, which brings it"
        )


class BuildModules(build_py):
    """The wheel's modules; an editable install compiles the gateway when the first agent program runs."""

    def run(self) -> None:
        """Compile the gateway, then collect modules and data."""
        if not self.editable_mode:
            compile_gateway()
            shutil.rmtree(self.build_lib, ignore_errors=True)  # modules of an earlier build would stay
        super().run()


class BuildSource(sdist):
    """The source distribution: it carries the compiled gateway."""

    def run(self) -> None:
        """Compile the gateway, then collect the files."""
        compile_gateway()
        super().run()


setup(
    package_dir=FOLDERS,
    packages=[
        name
        for package, folder in FOLDERS.items()
        for name in (
            package,
            *(f"{package}.{part}" for part in find_namespace_packages(folder, exclude=LEFT_OUT.get(package, []))),
        )
    ],
    cmdclass={"build_py": BuildModules, "sdist": BuildSource},
    # A tree of links, so that mypy, import-linter and editors find the modules as Python does; `make` links new files.
    options={"editable_wheel": {"mode": "strict"}},
)
