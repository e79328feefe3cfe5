"""SWE-rebench: issues of repositories in many languages, each row with its own commands and parser."""
