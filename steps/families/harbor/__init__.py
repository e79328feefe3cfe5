"""Harbor: tasks that are folders, graded by their own script, which writes a reward."""
