"""Instances to evaluate on, from every form SWE-bench datasets come in, and the predictions to grade on them."""
