"""R2E-Gym: commits of eleven repositories, graded by an exact map of test statuses."""
