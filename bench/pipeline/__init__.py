"""What the pipeline on Argo costs beside the work itself, and how well it keeps a cluster busy."""
