"""Official grading of one patch: the harness' procedure in a sandbox, its verdict, and whether to believe the log."""
