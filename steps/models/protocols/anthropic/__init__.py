"""Anthropic's messages (docs.anthropic.com, API version 2023-06-01), translated to and from chat completions."""
