"""Formatting of numbers and names, and sanitizing of hostile text."""
