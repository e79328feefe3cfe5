"""Terminal output: progress, tables, runs, units and trainings."""
