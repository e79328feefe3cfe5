"""The words the whole project shares: what is wished for, what flows, and what the steps are."""
