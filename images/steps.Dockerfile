# The steps of an evaluation (`python -m swe_argo.steps.grade ...`), and neither what runs them nor what built them.
#
# Context: the checkout, with the model gateway as `python -m swe_argo.steps.gateway.binary` builds it (images/build does).
# Build arguments:
#   BASE       an image with Python 3.11 or newer, its venv module and sh; pin it as NAME@sha256:...
#   PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST
#              where packages come from; credentials in them stay in the first stage, which is not part of the image.
#              Every package must have its hash in images/steps.lock, wherever it comes from.
#   VERSION, REVISION, SOURCE
#              labels of the image
# HTTP_PROXY, HTTPS_PROXY and NO_PROXY are build arguments of every builder. A private certificate authority belongs
# into the base image, or name its hosts in PIP_TRUSTED_HOST: the hashes vouch for what is downloaded.
ARG BASE=python:3.13-slim

FROM $BASE AS packages
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
COPY images/steps.lock /tmp/steps.lock
# Much is taken out again, for no step loads it: of the Kubernetes client its copy for asyncio, with aiohttp, and the
# classes of every object (swe_argo.steps.kube.requests); of Arrow Flight, ORC, remote file systems and sources; of the
# hub's client its commands, and the way to its second kind of storage (it takes the plain one then); of openai what
# administers accounts, and what is in beta or spoken; of numpy what builds Fortran; the lexers of every language; tests,
# headers, type stubs and lists of files; and the AWS services beside S3 and those that give credentials for it.
# Packages come compiled and without their sources, but for what reads its own; the two largest without docstrings.
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
        --no-deps --require-hashes --only-binary :all: -r /tmp/steps.lock \
    && /opt/venv/bin/python -m pip uninstall --quiet --yes aiohttp aiohttp-retry aiosignal aiohappyeyeballs \
        frozenlist multidict propcache yarl hf-xet pip setuptools \
    && cd /opt/venv/lib/python3*/site-packages \
    && echo /opt/swe-argo >swe-argo.pth \
    && rm -rf kubernetes/aio pyarrow/include pyarrow/src pyarrow/*flight* pyarrow/*_orc.* pyarrow/*_s3* \
        pyarrow/_azurefs.* pyarrow/_gcsfs.* pyarrow/_hdfs.* pyarrow/*_tests.* \
        pyarrow/libarrow_python*.so pyarrow/libarrow_python*.so.*.* huggingface_hub/cli huggingface_hub/inference \
        openai/resources/admin openai/resources/beta openai/resources/live openai/resources/realtime \
        openai/types/admin openai/types/beta openai/types/live openai/types/realtime \
        numpy/distutils numpy/f2py numpy/_core/include numpy/_core/lib numpy/random/lib numpy/_core/_simd.*.so \
    && find kubernetes/client/api kubernetes/client/models -name '*.py' ! -name __init__.py -delete \
    && find pygments/lexers pygments/styles -name '*.py' ! -name '_*' ! -name python.py ! -name default.py -delete \
    && find . -path '*.dist-info/RECORD' -delete \
    && find . -type d \( -name tests -o -name sboms \) -prune -exec rm -rf {} + \
    && find . -type f \( -name '*.py[xi]' -o -name '*.p[xy][di]' -o -name '*.pxi' -o -name '*.[ach]' \) -delete \
    && find botocore/data boto3/data -mindepth 1 -maxdepth 1 -type d \
        ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -rf {} + \
    && compile() { /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$@"; } \
    && compile "$PWD/datasets/packaged_modules" "$PWD/swebench" \
    && compile -b -o 2 "$PWD/numpy" "$PWD/pandas" \
    && compile -b -x '/(datasets/packaged_modules|swebench|numpy|pandas)/' "$PWD" \
    && find . -name '*.py' ! -path './datasets/packaged_modules/*' ! -path './swebench/*' -delete

FROM $BASE AS project
WORKDIR /opt/swe-argo
COPY workflows/python/swe_argo/__init__.py swe_argo/
COPY steps swe_argo/steps
COPY templates swe_argo/templates
COPY pyproject.toml /tmp/pyproject.toml
# The compiled mini repositories would be other repositories. plan asks for the version of the installed project.
RUN { [ -s swe_argo/steps/gateway/built/source ] || { echo "no gateway: python -m swe_argo.steps.gateway.binary" >&2; exit 1; }; } \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/mini/data/' swe_argo \
    && version="$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q;}' /tmp/pyproject.toml)" \
    && mkdir "swe_argo-$version.dist-info" \
    && printf 'Metadata-Version: 2.1\nName: swe-argo\nVersion: %s\n' "$version" >"swe_argo-$version.dist-info/METADATA" \
    && chmod -R a+rX,go-w .

FROM $BASE
# Official Python images come without compiled modules, and a step cannot write any; what installs packages goes.
RUN python3 -m compileall -q -j 0 -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip|site-packages)/' \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/* /usr/local/lib/python3*/ensurepip \
        /usr/bin/pip* /usr/lib/python3/dist-packages/pip* /usr/lib/python3*/ensurepip /usr/share/python-wheels
COPY --from=packages /opt/venv /opt/venv
COPY --from=project /opt/swe-argo /opt/swe-argo
# Any user id and a read-only root will do: only /tmp is written.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 \
    LANG=C.UTF-8 HOME=/tmp HF_HOME=/tmp/huggingface HF_HUB_DISABLE_XET=1 SWE_ARGO_HOME=/tmp/swe-argo
WORKDIR /tmp
USER 65532:65532
CMD ["python", "-m", "swe_argo.steps.plan", "--help"]
ARG VERSION=
ARG REVISION=
ARG SOURCE=
ENV SWE_ARGO_REVISION=$REVISION
LABEL org.opencontainers.image.title="swe-argo-steps" \
      org.opencontainers.image.description="The steps of a swe-argo evaluation: plan, solve, grade, report" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=$SOURCE
