"""Texts about one unit, for pages and terminals."""
