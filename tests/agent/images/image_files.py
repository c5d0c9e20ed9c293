"""Images as files, written by hand: layers, OCI and Docker archives, and pushes to a registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from computepool.protocol.images.manifests import ARCHITECTURES

ARCHITECTURE = ARCHITECTURES[platform.machine()]
BUSYBOX = Path("/bin/busybox")
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def folder(name: str, mode: int = 0o755) -> tarfile.TarInfo:
    return entry(name, type=tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, type=tarfile.LNKTYPE, linkname=target)


def layer(
    files: Mapping[str, bytes | str] = {}, others: Sequence[tarfile.TarInfo] = (), *, compress: str = ""
) -> bytes:
    """`others` come first. Files in `bin` are programs."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info in others:
            tar.addfile(info)
        for name, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            tar.addfile(entry(name, size=len(content), mode=0o755 if "bin/" in name else 0o644), io.BytesIO(content))
    if compress == "gzip":
        return gzip.compress(data.getvalue(), 1)
    if compress == "zstd":
        return subprocess.run(["zstd", "-qc"], input=data.getvalue(), capture_output=True, check=True).stdout
    return data.getvalue()


def busybox(*programs: str, compress: str = "") -> bytes:
    """A layer with a static shell and a few of its programs."""
    names = programs or ("sh", "cat", "echo", "ls", "id", "env", "pwd", "touch", "true", "sleep")
    return layer(
        {"bin/busybox": BUSYBOX.read_bytes()}, [folder("bin"), *(link(f"bin/{name}", "busybox") for name in names)],
        compress=compress,
    )  # fmt: skip


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class ImageFile:
    layers: Sequence[bytes]
    config: Mapping[str, Any] = field(default_factory=dict)  #: Env, Cmd, Entrypoint, WorkingDir
    architecture: str = ARCHITECTURE

    @property
    def config_bytes(self) -> bytes:
        return json.dumps({"architecture": self.architecture, "os": "linux", "config": dict(self.config)}).encode()

    @property
    def manifest(self) -> bytes:
        return json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": _descriptor(self.config_bytes, "application/vnd.oci.image.config.v1+json"),
                "layers": [_descriptor(data, "application/vnd.oci.image.layer.v1.tar") for data in self.layers],
            }
        ).encode()

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def blobs(self) -> list[bytes]:
        return [self.config_bytes, *self.layers]

    def save_oci(self, path: Path) -> Path:
        index = {"schemaVersion": 2, "manifests": [_descriptor(self.manifest, OCI_MANIFEST)]}
        files = {f"blobs/sha256/{digest_of(blob)[7:]}": blob for blob in [*self.blobs, self.manifest]}
        path.write_bytes(
            layer({"oci-layout": '{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index), **files})
        )
        return path

    def save_docker(self, path: Path) -> Path:
        names = [f"{number}/layer.tar" for number in range(len(self.layers))]
        manifest = [{"Config": "config.json", "RepoTags": ["test:latest"], "Layers": names}]
        files = {"config.json": self.config_bytes, "manifest.json": json.dumps(manifest)}
        path.write_bytes(layer({**dict(zip(names, self.layers, strict=True)), **files}))
        return path

    def push(self, registry: str, repository: str, tag: str) -> str:
        """Returns the digest."""
        with httpx2.Client(base_url=f"http://{registry}/v2/{repository}") as client:
            for blob in self.blobs:
                place = client.post("/blobs/uploads/").raise_for_status().headers["location"]
                parameters = {"digest": digest_of(blob)}
                client.put(httpx2.URL(place).copy_merge_params(parameters), content=blob).raise_for_status()
            headers = {"content-type": OCI_MANIFEST}
            client.put(f"/manifests/{tag}", content=self.manifest, headers=headers).raise_for_status()
        return self.digest


def push_index(registry: str, repository: str, tag: str, images: Sequence[ImageFile]) -> str:
    """An index of images for several architectures."""
    manifests = [
        {**_descriptor(image.manifest, OCI_MANIFEST), "platform": {"os": "linux", "architecture": image.architecture}}
        for image in images
    ]
    for image in images:
        image.push(registry, repository, image.architecture)
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}).encode()
    url = f"http://{registry}/v2/{repository}/manifests/{tag}"
    httpx2.put(url, content=index, headers={"content-type": OCI_INDEX}).raise_for_status()
    return digest_of(index)


def _descriptor(data: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
