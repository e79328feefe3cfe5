"""Records of a cluster's runs in their bucket."""

from __future__ import annotations

from contextlib import closing

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.sandbox_spec import KubernetesSpec
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store.runs import read_record
from swe_argo.workflows.argo import chart as charts
from swe_argo.workflows.argo.bucket import Bucket, open_bucket
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.engines import open_engine


def spec_of(engine: Engine, run: str) -> RunSpec:
    """Return the spec with which a run was started. Raises ConfigError if the bucket has none."""
    chart = charts.read(engine)
    return read_record(open_bucket(charts.store_address(chart, None), chart), RunFile, run).spec


def find_bucket(store: str | None, namespace: str | None, kube_context: str | None) -> Bucket:
    """Return the bucket at ``store``, by default that of the cluster.

    Raises ConfigError if the address is wrong or the bucket missing, InfraError if the cluster or bucket does not
    answer.
    """
    if store is not None:
        if not store.startswith("s3://"):
            raise ConfigError(f"{store} is not a bucket: give s3://bucket/prefix", field="--store")
        return open_bucket(store, None)
    with closing(open_engine(KubernetesSpec(namespace=namespace, context=kube_context))) as engine:
        chart = charts.read(engine)
        return open_bucket(charts.store_address(chart, None), chart)
