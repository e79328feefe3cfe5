"""swe-argo: the steps of an evaluation, one module per container."""

from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).resolve().parents[1] / "templates"
"""Folder of prompts, pages and run files: in the wheel beside this package, in a checkout the folder of that name."""
