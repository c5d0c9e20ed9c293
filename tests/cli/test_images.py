"""`pool images`, and jobs in an uploaded image, with a real hub and a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool.testing.processes import RealPool
from tests.agent.images.image_files import ImageFile, busybox, layer
from tests.cli.conftest import Run, reply, sign_in

pytestmark = pytest.mark.process


def test_an_image_is_pushed_listed_used_and_removed(run: Run, tmp_path: Path) -> None:
    image = ImageFile(
        [busybox(compress="gzip"), layer({"etc/motd": "from the image\n"})],
        {"Env": ["PATH=/bin"], "Entrypoint": ["cat"], "Cmd": ["/etc/motd"]},
    )
    with RealPool() as real:
        real.start_hub()
        real.start_agent(sandbox="namespace")
        sign_in(real)
        name = run("images", "push", image.save_docker(tmp_path / "app.tar")).out.strip()
        assert name.startswith("artifact:")
        assert reply(run("images", "push", tmp_path / "app.tar", "--json")) == {"image": name}
        [listed] = reply(run("images", "list", "--json"))
        assert (listed["image"], listed["name"]) == (name, "app.tar")
        assert run("submit", "--image", name, "--wait").out == "from the image\n"
        assert run("submit", "--image", name, "--wait", "--", "echo", "hello").out == "hello\n"
        wrong = run("submit", "--image", "no such image", "--", "true")
        assert (wrong.code != 0, "is not the name of an image" in wrong.err) == (True, True)
        refused = run("submit", "--image", "registry.example:5000/x:1", "--verify", "none", "--", "true")
        assert "does not run images from registry.example:5000" in refused.err
        (tmp_path / "no.tar").write_bytes(b"x" * 2000)
        bad = run("images", "push", tmp_path / "no.tar")
        assert (bad.code != 0, "is not an uncompressed archive of an image" in bad.err) == (True, True)
        assert run("images", "rm", name[:20]).out == f"removed {name}\n"
        assert reply(run("images", "list", "--json")) == []
