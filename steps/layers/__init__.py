"""Layers: archives of a machine's changed files, which can be applied to another machine."""
