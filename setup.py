"""The folders of the checkout as parts of one package, ``swe_argo``."""

from setuptools import find_namespace_packages, setup

FOLDERS = {
    "swe_argo": "workflows/python/swe_argo",
    "swe_argo.steps": "steps",
    "swe_argo.workflows": "workflows",
    "swe_argo.templates": "templates",
    "swe_argo.templates.chart": "charts/swe-argo",  # `swe-argo chart` prints its path
    "swe_argo_verifiers": "workflows/python/swe_argo_verifiers",
}
"""Package -> its folder. Folders of data inside them count as packages, too: setuptools installs no others."""

setup(
    package_dir=FOLDERS,
    packages=[
        name
        for package, folder in FOLDERS.items()
        for name in (package, *(f"{package}.{part}" for part in find_namespace_packages(folder, exclude=["python*"])))
    ],
    # A tree of links, so that mypy, import-linter and editors find the modules as Python does; `make` links new files.
    options={"editable_wheel": {"mode": "strict"}},
)
