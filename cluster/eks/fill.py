#!/usr/bin/env python3
"""Print a file with every ${NAME} replaced by the environment's NAME; one that is missing is an error, never nothing.

  fill.py FILE

Standard library only, so that a dry run needs nothing installed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

USAGE = 64
# What may stand in a name, an address range or a path: nothing that YAML could read as something else.
VALUE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._:/-]*|")


VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")


def fill(text: str, values: dict[str, str]) -> str:
    """Replace the variables of a text. Raises ValueError with the name of a missing or unsafe value."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            raise ValueError(f"{name} is not set")
        if not VALUE.fullmatch(values[name]):
            raise ValueError(f"{name}={values[name]!r} is no plain value: letters, digits and . _ : / - only")
        return values[name]

    return VARIABLE.sub(value, text)


def main() -> int:
    """Write the filled file to standard output."""
    if len(sys.argv) != 2:
        sys.stderr.write(__doc__ or "")
        return USAGE
    file = Path(sys.argv[1])
    try:
        sys.stdout.write(fill(file.read_text(), dict(os.environ)))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{file}: {error}\n")
        return USAGE
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
