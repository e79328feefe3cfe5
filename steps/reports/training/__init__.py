"""Reports of a training: its page, a file with its figures, and the same figures at Weights & Biases."""
