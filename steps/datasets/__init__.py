"""Datasets: instances in every form of SWE-bench datasets, and the predictions to grade on them."""
