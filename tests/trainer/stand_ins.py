"""What skyrl looks for beside itself and does not need here: file of the trainer's home -> its text."""

from __future__ import annotations

# pydantic 2.14 refuses typing.TypedDict before Python 3.12; one of skyrl's modules has fields of such a type.
TYPED_DICT = """\
import typing
import typing_extensions

typing.TypedDict = typing_extensions.TypedDict
"""

# Weights of an adapter are written beside a configuration, which nobody reads here. The real peft needs torch.
PEFT = """\
import json
import pathlib


class LoraConfig:
    def __init__(self, **fields):
        self.fields = fields

    def save_pretrained(self, folder):
        pathlib.Path(folder, "adapter_config.json").write_text(json.dumps(self.fields))
"""

# A type in a signature; the JAX backend computes nothing with torch.
TORCH = """\
class Tensor:
    pass
"""

# skyrl starts its engine by `uv run ... -m MODULE ...`, and finds its own words in the command line of its parent:
# so this stays the parent.
UV = """\
#!/bin/sh
while [ "$1" != "-m" ]; do shift; done
"$(dirname "$0")/python" "$@"
"""

MODULES = {"sitecustomize.py": TYPED_DICT, "peft/__init__.py": PEFT, "torch/__init__.py": TORCH}
