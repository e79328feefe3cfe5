"""Harbor: tasks that are folders, graded by a script of their own that writes a reward."""
