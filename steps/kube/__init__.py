"""The only client of the Kubernetes API."""
