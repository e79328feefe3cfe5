"""Tasks of SWE-rebench: issues of many repositories in many languages, each row with its own commands and parser."""
