"""What differs between a machine and the one it began as, as an archive: taken from one machine, laid into another."""
