"""Measurements of the project: `python -m bench.measure`."""
