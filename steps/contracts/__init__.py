"""Types shared by the whole project: specs, records and the programs of the chain."""
