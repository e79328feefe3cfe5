"""Which tests are known to flip: the same patch of the same instance, and another end of the test."""
