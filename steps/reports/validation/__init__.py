"""Evaluation of a validation's two runs, and the page about it."""
