"""Evaluation of a validation's two runs, and its page."""
