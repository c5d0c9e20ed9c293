"""`pool artifacts` with a real hub and a real node; and an account whose storage is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from computepool.core.errors import QuotaExceeded
from computepool.sdk import JobFailed, connect
from computepool.sdk.client.config import Config, save_config
from computepool.testing.processes import RealPool
from tests.cli.conftest import Run, reply, sign_in

pytestmark = pytest.mark.process
MB = 1_000_000


def make_output(size: int) -> int:
    Path(os.environ["COMPUTEPOOL_OUTPUTS"], "big").write_bytes(os.urandom(size))
    return size


def long_result(size: int) -> str:
    return "x" * size


def test_files_are_uploaded_shown_kept_downloaded_and_removed(run: Run, tmp_path: Path) -> None:
    with RealPool() as real:
        real.start_hub()
        sign_in(real)
        source = tmp_path / "data [1].bin"
        source.write_bytes(os.urandom(3 * MB))
        digest, name, size = run("artifacts", "put", source).out.strip().split("\t")
        assert (name, size) == (source.name, "3 MB")
        short = digest[:10]
        listed = run("artifacts", "list")
        assert digest in listed.out
        assert "You store 1 files, 3 MB of 1.1 TB (0%). Files are kept for 90 d" in listed.err
        document = reply(run("artifacts", "list", "--json"))
        assert (document["storage"]["bytes"], document["artifacts"][0]["digest"]) == (3 * MB, digest)
        shown = run("artifacts", "info", short).out
        assert "3 MB (3,000,000 bytes)" in shown
        assert "upload" in shown
        assert "is kept until released" in run("artifacts", "keep", short).out
        document = reply(run("artifacts", "info", short, "--json"))
        assert (document["whole"], document["kept_until_ms"]) == (True, None)
        assert {ref["role"] for ref in document["refs"]} == {"upload", "kept"}
        assert run("artifacts", "keep", short, "--release").out == f"released {digest[:12]}\n"
        assert "is kept until 20" in run("artifacts", "keep", short, "--for", "365d").out
        fetched = run("artifacts", "get", short, tmp_path / "back")
        assert (fetched.code, (tmp_path / "back").read_bytes()) == (0, source.read_bytes())
        assert run("hub", "check", "--deep", "--data", real.folder).out == "All checks passed.\n"
        assert run("artifacts", "rm", short).out == f"removed {digest[:12]}\n"
        gone = run("artifacts", "info", digest)
        assert (gone.code != 0, "or it has expired" in gone.err) == (True, True)


@pytest.mark.soak
def test_an_account_over_its_quota_can_neither_upload_nor_submit(run: Run, tmp_path: Path) -> None:
    with RealPool() as real:
        hub = real.start_hub()
        sign_in(real)
        real.start_agent(cores=2, sandbox="namespace")
        sam = real.account("sam", "submitter")
        quota = run("accounts", "quota", "sam", "--files", "4MB", "--keep", "7d")
        assert "storage: 4 MB; files kept for: 7 d" in quota.out, quota
        assert (
            "unfinished jobs: 9; credits per day: hub default; storage: 4 MB"
            in run("accounts", "quota", "sam", "--jobs", "9").out
        )
        sam.artifacts.put_bytes(os.urandom(3 * MB), name="mine")
        with pytest.raises(QuotaExceeded, match=r"stores 3 MB of files and job data and may store 4 MB"):
            sam.artifacts.put_bytes(os.urandom(2 * MB), name="more")
        # The outputs of jobs may exceed the quota by half.
        for function, size in ((make_output, 4 * MB), (long_result, 4 * MB)):
            with pytest.raises(JobFailed, match="cannot be stored: The submitter's account stores 3") as failed:
                sam.submit(function, size).result(timeout=60)
            assert failed.value.reason == "output_limit"
        assert sam.submit(make_output, 2 * MB).result(timeout=60) == 2 * MB
        sam.close()
        save_config(Config(hub=hub.url, key=_key(real, "sam")))
        listed = run("artifacts", "list")
        assert "5 MB of 4 MB (125%)" in listed.err
        refused = run("submit", "--", "/bin/true")
        assert (refused.code != 0, "Delete some artifacts before you submit" in refused.err) == (True, True)
        assert real.broken_rules() == []


def _key(real: RealPool, name: str) -> str:
    admin = connect(real.hubs[0].url, real.admin_key)
    try:
        return admin.keys.create("again", account_id=admin.accounts.find(name).id).key
    finally:
        admin.close()
