"""``python -m steps.datasets.mini``: the names of the mini images, and what images/mini.Dockerfile is built from."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from steps.contracts.images import swebench_image
from steps.datasets.mini.content import digest, instance_ids
from steps.datasets.mini.history import materialise
from steps.errors import EXIT_CONFIG, StepError


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each instance, ``<id> <image> <digest>``; with a folder, first write its repository there."""
    parser = argparse.ArgumentParser(
        prog="python -m steps.datasets.mini", description="For each mini instance print: id, image, digest."
    )
    parser.add_argument("--contexts", type=Path, metavar="FOLDER", help="write FOLDER/ID/testbed, its repository, too")
    parser.add_argument("ids", nargs="*", metavar="ID", help="an instance (default: all)")
    args = parser.parse_args(arguments)
    os.umask(0o022)  # whoever makes an image, any user may read what it holds
    try:
        for instance_id in args.ids or instance_ids():
            current = digest(instance_id)
            if args.contexts:
                materialise(instance_id, args.contexts / instance_id)
            sys.stdout.write(f"{instance_id} {swebench_image(instance_id)} {current}\n")
    except StepError as error:
        sys.stderr.write(f"{error.reason}\n")
        sys.exit(error.exit_code)
    except FileExistsError as error:
        sys.stderr.write(f"--contexts: {error.filename} is there already: name an empty folder\n")
        sys.exit(EXIT_CONFIG)


if __name__ == "__main__":
    main()
