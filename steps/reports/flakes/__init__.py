"""Record of flipping tests: the same patch of the same instance with different results of a test."""
