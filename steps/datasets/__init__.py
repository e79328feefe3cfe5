"""Datasets of instances in every format, and predictions to grade on them."""
