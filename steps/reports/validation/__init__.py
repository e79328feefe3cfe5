"""What a validation makes of its two runs, and its page."""
