"""The blob store that the settings choose: the hub's folder, or an S3-compatible service."""

from __future__ import annotations

import importlib
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
    try:  # imported here: boto3 is an extra, and slow to load
        module = importlib.import_module("computepool.hub.artifacts.storage.s3")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("computepool"):
            raise
        raise BadRequest(
            f"Artifacts at S3 need {error.name}, which is not installed: in the project's folder, run "
            "pipx install --force '.[hub,s3]'",
            field="blobs",
        ) from error
    prefix = address.path.strip("/")
    blobs: Blobs = module.S3Blobs(address.netloc, f"{prefix}/" if prefix else "", settings)
    return blobs
