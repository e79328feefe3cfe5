"""What a person sees of a training: its page, its figures as a file, and the same at Weights & Biases."""
