"""Families of tasks: the format of a row, the parts an agent may know, and the grading of a patch."""
