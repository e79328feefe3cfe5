"""A unit as text for people."""
