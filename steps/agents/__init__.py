"""Agents: their loop, the repository as prepared for them, and the patches that they produce."""
