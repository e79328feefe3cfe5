"""Official grading of one patch: the harness' procedure in a sandbox, its verdict, and the checks on the test log."""
