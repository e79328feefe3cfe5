"""Texts about a run for chats and terminals."""
