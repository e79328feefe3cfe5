# The steps' image with what training needs beside it: Tinker's SDK, tokenizers and a web server (`python -m
# swe_argo.steps.proxy`, `python -m swe_argo.workflows.view`).
# It shares the layers of the steps' image, so that a node that has one pulls little for the other.
#
# Context: the checkout. Build arguments:
#   STEPS      the image of the steps, built on BASE
#   BASE, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST
#              as for images/steps.Dockerfile
ARG BASE=python:3.13-slim
ARG STEPS=swe-argo-steps

FROM $BASE AS packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
# What the steps' image has is not in this lock.
COPY images/training.lock /tmp/training.lock
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
        --no-deps --require-hashes --only-binary :all: -r /tmp/training.lock \
    && /opt/venv/bin/python -m pip uninstall --quiet --yes pip setuptools \
    && cd /opt/venv/lib/python3*/site-packages \
    && find . -path '*.dist-info/RECORD' -delete \
    && find . -type d -name tests -prune -exec rm -rf {} + \
    && /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$PWD"

FROM $STEPS
COPY --from=packages /opt/venv/lib /opt/venv/lib
# The viewer, and what it reads runs by (`python -m swe_argo.workflows.view`).
COPY workflows /opt/swe-argo/swe_argo/workflows
CMD ["python", "-m", "swe_argo.steps.proxy", "--help"]
LABEL org.opencontainers.image.title="swe-argo-training" \
      org.opencontainers.image.description="The steps of swe-argo with Tinker's SDK: the proxy in front of its models"
