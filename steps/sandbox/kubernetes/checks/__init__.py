"""The plan step's checks of a cluster, one module per check."""
