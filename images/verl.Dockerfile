# verl's own image with the project in it: what learns on GPUs and makes the sandboxes of its rollouts (docs/verl.md).
#
# Context: the checkout. Build arguments:
#   BASE       an image with verl's dependencies, an engine and CUDA. vllm024.dev2 is the one that verl 0.9 is tested with;
#              for SGLang, verlai/verl:sgl0512.dev1
#   VERL       version of verl
#   PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST
#              where packages come from
ARG BASE=verlai/verl:vllm024.dev2

FROM $BASE
ARG VERL=0.9.1
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY pyproject.toml images/steps.lock images/verl_packages.py /tmp/
# swebench, verl and TransferQueue, which verl's trainer stands on and older images lack, name more than the parts of them that
# are used here need. Of tensordict this version alone suits both.
RUN cd /tmp \
    && export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    && python3 verl_packages.py pyproject.toml steps.lock needed.txt kept.txt \
    && python3 -m pip install --quiet --constraint kept.txt --requirement needed.txt pyzmq msgspec prometheus_client \
    && python3 -m pip install --quiet --no-deps "verl==$VERL" TransferQueue==0.1.11 tensordict==0.10.0 \
        "$(sed -n 's/^  "\(swebench==[0-9.]*\)".*/\1/p' pyproject.toml)" \
    && rm needed.txt kept.txt steps.lock verl_packages.py
COPY workflows/python/swe_argo /opt/swe-argo/swe_argo
COPY steps /opt/swe-argo/swe_argo/steps
COPY workflows /opt/swe-argo/swe_argo/workflows
COPY templates /opt/swe-argo/swe_argo/templates
# plan asks for the version of the installed project.
RUN site="$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && version="$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q;}' /tmp/pyproject.toml)" \
    && echo /opt/swe-argo >"$site/swe-argo.pth" \
    && mkdir -p "$site/swe_argo-$version.dist-info" /trainings \
    && printf 'Metadata-Version: 2.1\nName: swe-argo\nVersion: %s\n' "$version" >"$site/swe_argo-$version.dist-info/METADATA" \
    && printf '#!/bin/sh\nexec python3 -c "from swe_argo.workflows.cli.main import main; main()" "$@"\n' >/usr/local/bin/swe-argo \
    && chmod 755 /usr/local/bin/swe-argo \
    && chmod -R a+rX,go-w /opt/swe-argo && chown 65532:65532 /trainings && rm /tmp/pyproject.toml
# The pod's volume is mounted here; whoever has no name is asked for one by PyTorch.
ENV HOME=/trainings USER=swe-argo SWE_ARGO_VERL=/opt/swe-argo/swe_argo/templates/verl
WORKDIR /trainings
USER 65532:65532
CMD ["python3", "-m", "verl.trainer.main_ppo", "--config-path", "/opt/swe-argo/swe_argo/templates/verl", "--config-name", "grpo"]
LABEL org.opencontainers.image.title="swe-argo-verl" \
      org.opencontainers.image.description="verl with the sandboxes and verdicts of swe-argo"
