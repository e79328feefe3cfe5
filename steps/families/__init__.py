"""Task families: row formats, the parts of a row that an agent may see, and grading."""
