"""Everything a run leaves behind for people and other programs: figures, official files, and a page."""
