"""Serving of models that are sampled token by token (Tinker's), behind the OpenAI API."""
