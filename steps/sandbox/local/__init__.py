"""Backend local: a private folder a sandbox, isolated by bubblewrap where it works."""
