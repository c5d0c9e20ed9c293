"""The storage of artifact bytes, as the settings say: in the hub's folder, or at an S3-compatible service."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import urlsplit

from computepool.core.errors import BadRequest
from computepool.hub.artifacts.storage.base import Blobs
from computepool.hub.artifacts.storage.disk import DiskBlobs
from computepool.hub.settings import Settings


def make_blobs(settings: Settings) -> Blobs:
    if not settings.blobs:
        return DiskBlobs(settings.data_dir, chunk_bytes=settings.artifact_chunk_bytes)
    address = urlsplit(settings.blobs)
    if address.scheme != "s3" or not address.netloc or address.query or address.fragment:
        raise BadRequest(
            f"COMPUTEPOOL_BLOBS is empty (the hub's own disk) or s3://bucket/prefix, not {settings.blobs!r}.",
            field="blobs",
        )
    prefix = address.path.strip("/")
    module = _s3()
    blobs: Blobs = module.S3Blobs(
        module.Service(
            bucket=address.netloc,
            prefix=f"{prefix}/" if prefix else "",
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=settings.s3_secret_access_key.get_secret_value(),
            part_bytes=settings.s3_part_bytes,
        )
    )
    return blobs


def _s3() -> Any:
    """Imported when asked for: boto3 is an extra, and slow to load."""
    try:
        return importlib.import_module("computepool.hub.artifacts.storage.s3")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("computepool"):
            raise
        raise BadRequest(
            f"Artifacts at S3 need {error.name}, which is not installed: in the project's folder, "
            "pipx install --force '.[hub,s3]'",
            field="blobs",
        ) from error
