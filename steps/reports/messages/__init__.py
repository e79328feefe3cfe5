"""Texts about a run outside of its page: a chat message, the summary at a terminal."""
