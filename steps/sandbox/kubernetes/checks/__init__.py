"""The plan step's checks of a cluster before anything is made, one module per check."""
