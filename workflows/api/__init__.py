"""What a program does with runs: read them, compare them, start them. The command line stands on it, too."""
