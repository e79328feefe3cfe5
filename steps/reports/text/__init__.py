"""Text for people: numbers, names and sanitized hostile text."""
