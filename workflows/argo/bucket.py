"""The bucket of a cluster's runs, as it is reached from a person's machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from swe_argo.steps.store.s3 import S3Store
from swe_argo.workflows.argo.chart import Chart


@dataclass(frozen=True)
class BucketObject:
    """An object without its bytes."""

    size: int
    etag: str
    """MD5 of the bytes where it was written in one piece; else something with a dash (S3: Common Response Headers)."""

    def same(self, path: Path) -> bool:
        """Whether the file holds these bytes, as far as can be told without fetching them."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if "-" in self.etag:
            return True
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == self.etag


class Bucket(S3Store):
    """The store, with sizes, and with transfers that go past memory."""

    def list_objects(self, prefix: str) -> dict[str, BucketObject]:
        """Key -> what is told of it, of all keys below a prefix that ends at a slash."""
        objects: dict[str, BucketObject] = {}
        with self._failures():
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            for page in pages:
                for entry in page.get("Contents", []):
                    name = entry["Key"][len(self._prefix) :]
                    if not name.endswith("/"):
                        objects[name] = BucketObject(entry["Size"], entry["ETag"].strip('"'))
        return objects

    def download(self, key: str, path: Path) -> None:
        """Into a neighbour, then a rename: a file is whole or not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        try:
            with self._failures(), part.open("wb") as file:
                self._s3.download_fileobj(self._bucket, self._prefix + key, file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def upload(self, path: Path, key: str) -> None:
        """A file under a key."""
        with self._failures(), path.open("rb") as file:
            self._s3.upload_fileobj(file, self._bucket, self._prefix + key)


def open_bucket(url: str, chart: Chart | None) -> Bucket:
    """The bucket at ``s3://bucket/prefix``, there. Raises ConfigError: no such one, no access; InfraError: no answer.

    Where this machine's environment names no endpoint, the chart's is asked.
    """
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return Bucket(bucket, prefix.strip("/"), create=False, endpoint=(chart.endpoint or None) if chart else None)
