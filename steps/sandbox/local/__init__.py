"""Backend local: one private folder per sandbox, isolated by bubblewrap if it works."""
