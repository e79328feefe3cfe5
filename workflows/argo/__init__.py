"""The person's side of the pipeline on Argo: submit, watch, stop, resume, fetch, nightly."""
