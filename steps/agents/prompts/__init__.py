"""Prompts: templates, their validation, and the wording of a scaffold."""
