"""Reports of a training: its page, a file with its figures, and their upload to Weights & Biases."""
