"""Report pages: ``report.html`` and a page for each unit."""
