"""Who works on an issue, what it may see, and what it leaves."""
