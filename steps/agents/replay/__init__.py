"""Replay of recorded actions without a model."""
