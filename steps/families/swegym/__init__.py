"""SWE-Gym: issues of further Python repositories, graded by SWE-bench's rule of that time."""
