"""A throwaway S3 service on the loopback interface: SeaweedFS, a real one, from the development tools.

It owns its folder and its process, and leaves nothing behind however the test process ends.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from computepool.testing.processes import free_port

ACCESS_KEY, SECRET_KEY = "testing", "a-secret-for-testing"
START_S = 40.0
_BUCKET = "artifacts-of-tests"
_IDENTITY = {
    "name": "tests",
    "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
}
#: The input's end means that the test process is gone, even by kill -9.
_SUPERVISOR = '"$@" </dev/null & server=$!; read -r _; kill -9 "$server"; wait "$server"; rm -rf "$PWD"'


class S3Server:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="computepool-s3-"))
        self._names = itertools.count(1)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of a hub, without `blobs`."""
        return {
            "s3_endpoint": self.endpoint,
            "s3_region": "us-east-1",
            "s3_access_key_id": ACCESS_KEY,
            "s3_secret_access_key": SECRET_KEY,
        }

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"max_attempts": 1}),
        )

    def fresh(self) -> str:
        """The address of a new store: a folder, because every bucket takes volumes of the service."""
        return f"s3://{_BUCKET}/pool/{next(self._names)}"

    def _make_bucket(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.client().create_bucket(Bucket=_BUCKET)
                return
            except (BotoCoreError, ClientError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def __enter__(self) -> Self:
        (self._folder / "data").mkdir()
        (self._folder / "s3.json").write_text(json.dumps({"identities": [_IDENTITY]}))
        ports = {
            "master.port": free_port(),
            "master.port.grpc": free_port(),
            "volume.port": free_port(),
            "volume.port.grpc": free_port(),
            "filer.port": free_port(),
            "filer.port.grpc": free_port(),
            "s3.port": self._port,
            "s3.port.grpc": free_port(),
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        command = [
            str(Path(sys.executable).with_name("weed")),
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-dir=data",
            "-filer",
            "-s3",
            "-s3.config=s3.json",
            "-volume.max=50",
            "-volume.preStopSeconds=0",
            "-master.volumeSizeLimitMB=256",
            "-master.telemetry=false",
            *(f"-{name}={port}" for name, port in ports.items()),
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "sh", *command],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait()
        self._make_bucket()
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                with urlopen(self.endpoint, timeout=2):
                    return
            except HTTPError:
                return  # it answers: who we are it does not know
            except (URLError, OSError):
                time.sleep(0.05)
        raise RuntimeError(f"the S3 service did not start:\n{(self._folder / 'log').read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate(b"stop\n", timeout=30)
        shutil.rmtree(self._folder, ignore_errors=True)
