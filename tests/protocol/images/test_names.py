"""Names of images: what people write, and what it means everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.protocol.images.names import is_allowed, is_local, parse_image
from computepool.protocol.jobs.jobs import JobSpec

A, B = "a" * 64, "b" * 64

NAMES = [
    ("python", "docker.io/library/python:latest", "https://registry-1.docker.io"),
    ("python:3.12", "docker.io/library/python:3.12", "https://registry-1.docker.io"),
    ("acme/tool", "docker.io/acme/tool:latest", "https://registry-1.docker.io"),
    (f"python@sha256:{A}", f"docker.io/library/python@sha256:{A}", "https://registry-1.docker.io"),
    (f"ghcr.io/acme/tool:1@sha256:{A}", f"ghcr.io/acme/tool:1@sha256:{A}", "https://ghcr.io"),
    ("GHCR.io/acme/tool", "ghcr.io/acme/tool:latest", "https://ghcr.io"),
    ("reg.example.org:443/x", "reg.example.org:443/x:latest", "https://reg.example.org:443"),
    ("localhost:5000/x", "localhost:5000/x:latest", "http://localhost:5000"),
    ("localhost/x", "localhost/x:latest", "http://localhost"),
    ("[::1]:5000/x", "[::1]:5000/x:latest", "http://[::1]:5000"),
    ("127.1.2.3:5000/x", "127.1.2.3:5000/x:latest", "http://127.1.2.3:5000"),
    ("10.0.0.1:5000/x", "10.0.0.1:5000/x:latest", "https://10.0.0.1:5000"),
]


@pytest.mark.parametrize(("text", "full", "url"), NAMES)
def test_the_full_form(text: str, full: str, url: str) -> None:
    name = parse_image(text)
    assert (str(name), name.url) == (full, url)
    assert parse_image(full) == name


WRONG = [
    "", " ", "a b", "/x", "x/", "a//b", "x:", "x@", "x@sha256:1", f"x@sha256:{A[:-1]}G", "../x", "-x", "X/y", "x:-1",
    "x\n", "x\0", "artifact:", "artifact:1", f"artifact:{A.upper()}", "reg.io:0/x", "reg.io:99999/x", "reg.io:25/x",
    "*.reg.io/x", "http://reg.io/x", "user@reg.io/x", "reg.io/x?y", "a" * 600, "reg.io/" + "a/" * 300, "ré.io/x",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"image|registry|name"):
        parse_image(text)


def test_uploaded_images() -> None:
    name = parse_image(f"artifact:{A}")
    assert (str(name), name.hex_digest, name.source) == (f"artifact:{A}", A, "artifact")


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_is_refused(text: str) -> None:
    try:
        full = str(parse_image(text))
    except ValueError:
        return
    assert str(parse_image(full)) == full


def test_lists_of_registries() -> None:
    assert is_allowed("docker.io", ["docker.io"])
    assert is_allowed("docker.io", ["*"])
    assert not is_allowed("docker.io", ["artifact", "ghcr.io"])
    assert is_allowed("artifact", ["artifact"])
    assert not is_allowed("artifact", ["*"])
    assert [is_local(name) for name in ("localhost", "127.0.0.1:5000", "[::1]:1", "localhost.example.org")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_the_spec_has_the_full_name_and_old_specs_stay_the_same() -> None:
    spec = JobSpec(kind="command", name="x", image="busybox")
    assert spec.image == "docker.io/library/busybox:latest"
    assert spec.requirements().image_source == "docker.io"
    assert JobSpec(kind="command", name="x", argv=["x"]).body() == '{"kind":"command","name":"x","argv":["x"]}'
    with pytest.raises(ValueError, match="needs argv, or an image"):
        JobSpec(kind="command", name="x")
