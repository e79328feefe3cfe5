"""Layers: the differences between a machine and its start, as an archive taken from one machine, applied to another."""
