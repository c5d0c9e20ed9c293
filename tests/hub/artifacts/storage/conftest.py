"""Fixtures for both blob stores: a folder, and a bucket at a real S3 service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from computepool.hub.artifacts.storage.base import Blobs
from computepool.hub.artifacts.storage.choice import make_blobs
from computepool.hub.settings import Settings
from tests.hub.artifacts.storage.weed import S3Server

MakeBlobs = Callable[[], Blobs]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=["disk", "s3"])
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a store of its own."""
    if request.param == "disk":
        return {"data_dir": tmp_path / "hub"}
    server: S3Server = request.getfixturevalue("s3")
    # The least that the service takes as a part, so that few bytes make several.
    part = 5 * 1024 * 1024
    return {"data_dir": tmp_path / "hub", "blobs": server.fresh(), "s3_part_bytes": part, **server.settings}


@pytest.fixture
def make(store_settings: dict[str, Any]) -> MakeBlobs:
    """Another hub's view of the same store."""
    return lambda: make_blobs(Settings(**store_settings))


@pytest.fixture
def blobs(make: MakeBlobs) -> Blobs:
    return make()
