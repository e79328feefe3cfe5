"""Harbor: tasks that are folders, graded by a script of theirs that writes a reward."""
