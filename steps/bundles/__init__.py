"""Bundles of agent programs' files: reading recipes, building, storing and finding bundles."""
