"""The figures of a report, and the caveats about them."""
