"""What runs the steps: this machine, and the command line."""
