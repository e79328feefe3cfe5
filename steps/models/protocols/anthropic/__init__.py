"""Anthropic's messages (docs.anthropic.com, API version 2023-06-01): in the words of chat completions, and back."""
