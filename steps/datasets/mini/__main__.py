"""``python -m swe_argo.steps.datasets.mini``: list mini images, and write their build contexts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from swe_argo.steps.datasets.mini.forms import digest, find_workdir, image_by_id, materialise
from swe_argo.steps.datasets.names import BUNDLED, MINI
from swe_argo.steps.errors import EXIT_CONFIG, StepError


def main(arguments: Sequence[str] | None = None) -> None:
    """Print ``<id> <image> <digest> <workdir>`` for each instance; with --contexts, also write its repository."""
    parser = argparse.ArgumentParser(
        prog="python -m swe_argo.steps.datasets.mini",
        description="Print id (after its dataset, unless mini), image, digest and workdir of each instance.",
    )
    parser.add_argument(
        "--contexts", type=Path, metavar="FOLDER", help="also write each repository to FOLDER/ID/testbed"
    )
    parser.add_argument(
        "names", nargs="*", default=[MINI], metavar="NAME", help=f"an instance of mini, or {', '.join(BUNDLED)}"
    )
    args = parser.parse_args(arguments)
    os.umask(0o022)  # image content must be readable by any user
    try:
        for dataset, instance_id, image in dict.fromkeys(_find_images(args.names)):
            name = instance_id if dataset == MINI else f"{dataset}/{instance_id}"
            current = digest(instance_id, dataset)
            if args.contexts:
                materialise(instance_id, args.contexts / name, dataset)
            sys.stdout.write(f"{name} {image} {current} {find_workdir(instance_id, dataset)}\n")
    except StepError as error:
        sys.stderr.write(f"{error.reason}\n")
        sys.exit(error.exit_code)
    except FileExistsError as error:
        sys.stderr.write(f"--contexts: {error.filename} already exists: choose an empty folder\n")
        sys.exit(EXIT_CONFIG)


def _find_images(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield dataset, id and image of the instances called ``names``. Raises ConfigError for an unknown name."""
    for name in names:
        if name in BUNDLED:
            yield from ((name, instance_id, image) for instance_id, image in image_by_id(name).items())
        else:
            digest(name)
            yield MINI, name, image_by_id(MINI)[name]


if __name__ == "__main__":
    main()
