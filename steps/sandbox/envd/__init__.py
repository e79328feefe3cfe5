"""What E2B and services that speak its data plane share: envd, which runs commands and keeps files in a machine."""
