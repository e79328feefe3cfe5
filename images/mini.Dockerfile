# One mini instance as a sandbox: the image that swe_argo.steps.datasets.mini.build makes, for backends that pull theirs.
#
# Context: the folder that `python -m swe_argo.steps.datasets.mini --contexts FOLDER` writes. `images/build` does all of it.
#   INSTANCE   the instance's id, e.g. mini__slugkit-1
#   DIGEST     of what the image is made from: the third word of the line that the command prints
#   WORKDIR    where the repository lies: the fourth word
#   BASE       python3 with pytest, git and patch, or with apt and pip; pin it as NAME@sha256:...
ARG BASE=python:3.11-slim
FROM $BASE
# git, patch, python and pytest are all the tests need. A base that has them is left as it is, and no network is needed.
RUN { command -v git && command -v patch; } \
    || { apt-get update && apt-get install -y --no-install-recommends git patch && rm -rf /var/lib/apt/lists/*; }
RUN command -v python || { mkdir -p /usr/local/bin && ln -s "$(command -v python3)" /usr/local/bin/python; }
RUN python -c 'import pytest' || python -m pip install --no-cache-dir 'pytest>=8.3,<10'
ARG INSTANCE
ARG WORKDIR=/testbed
COPY $INSTANCE/testbed $WORKDIR
WORKDIR $WORKDIR
ARG DIGEST=
LABEL swe-argo.digest=$DIGEST
