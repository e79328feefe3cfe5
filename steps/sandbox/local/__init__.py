"""Backend local: one private folder per sandbox, isolated by bubblewrap where available."""
