"""What plan asks of a cluster before anything is made, one module a question."""
