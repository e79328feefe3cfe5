"""Results of a run for people and other programs: figures, official files and pages."""
