"""SWE-smith: bugs inserted into repositories on branches, graded by lists of tests."""
