"""What measures the project: `python -m bench.measure`."""
