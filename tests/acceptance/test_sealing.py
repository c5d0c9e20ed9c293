"""A sealed job from end to end: the submitter can read everything, the hub nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from computepool import JobFailed, Pool
from computepool.core.errors import BadRequest
from computepool.protocol.sealing import MAGIC
from computepool.sdk.files import sealing
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool

pytestmark = pytest.mark.process
#: Made from two halves on the node: code and arguments are not sealed.
SECRET = "plain-" + "as-day"


@pytest.fixture
def real(make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealPool:
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "config" / "config.json"))
    pool = make_pool()
    pool.start_agent(sandbox="namespace")
    return pool


def short(half: str) -> str:
    print(f"{half}as-day")
    return f"{half}as-day"


def long(half: str) -> list[str]:
    import computepool

    (computepool.outputs() / "made.bin").write_bytes(f"{half}as-day".encode() * 20_000)
    return [f"{half}as-day"] * 40_000


def wrong(half: str) -> None:
    raise ValueError(f"{half}as-day")


SCRIPT = """
import computepool, sys
words = "plain-" + "as-" + "day"
print(words)
print(words, file=sys.stderr)
(computepool.outputs() / "out.txt").write_text(words * 10_000)
sys.exit(int(sys.argv[1]))
"""


def holding(folder: Path, words: str) -> list[str]:
    """Files in which the words can be read; the database and its journal among them."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes())


def test_the_hub_keeps_ciphertext_only(real: RealPool, tmp_path: Path) -> None:
    client, hub = real.client(), real.hubs[0].settings.data_dir
    sealing.init()
    assert client.submit(short, "plain-", seal=True).result(60) == SECRET
    future = client.submit(long, "plain-", seal=True)
    assert future.result(60) == [SECRET] * 40_000
    assert list(client.map(short, ["plain-"] * 3, seal=True)) == [SECRET] * 3
    with pytest.raises(JobFailed, match=f"ValueError: {SECRET}"):
        client.submit(wrong, "plain-", seal=True).result(60)
    _run_scripts(client, tmp_path)
    _check_outputs(client, future.job_id, tmp_path)
    _check_home(client, real.folder, tmp_path)
    assert holding(hub, SECRET) == []
    assert client.submit(short, "plain-").result(60) == SECRET
    # The control: what is not sealed is found.
    wait_until(lambda: any("sqlite" in name for name in holding(hub, SECRET)), 60, "the plain one")


def _run_scripts(client: Pool, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    outcome = client.run(script, ["0"], seal=True)
    assert SECRET in outcome.output
    [path] = outcome.download(tmp_path / "got")
    assert path.read_text() == SECRET * 10_000
    with pytest.raises(JobFailed, match="exit code 3"):
        client.run(script, ["3"], seal=True)


def _check_home(client: Pool, folder: Path, tmp_path: Path) -> None:
    """What comes home is sealed, too; its owner opens it there."""
    group = client.groups.create("sealed", return_home=True)
    client.submit(long, "plain-", seal=True, group=group.id).result(60)
    wait_until(lambda: client.groups.get(group.id).home.state == "arrived", 60, "the group at home")
    [home] = folder.glob(f"*/home/sealed-{group.id}")
    files = [path for path in home.rglob("*") if path.is_file()]
    sealed = [path for path in files if path.read_bytes().startswith(MAGIC)]
    assert len(sealed) >= 2
    assert holding(home, SECRET) == []
    for path in sealed:
        sealing.open_file(path, tmp_path / "from-home")
        assert SECRET.encode() in (tmp_path / "from-home").read_bytes()


def _check_outputs(client: Pool, job_id: str, tmp_path: Path) -> None:
    job = client.jobs.get(job_id)
    assert (job.verify, job.spec.seal_to) == ("none", sealing.recipient(True))
    [output] = job.outputs
    raw = client.artifacts.get(output.digest, tmp_path / "raw", raw=True)
    assert raw.read_bytes().startswith(MAGIC)
    sealing.open_file(raw, tmp_path / "opened")
    assert (tmp_path / "opened").read_bytes() == SECRET.encode() * 20_000
    key_file = sealing.key_path()
    kept = key_file.read_text()
    key_file.unlink()
    with pytest.raises(sealing.CannotOpen, match="pool seal import"):
        client.artifacts.get(output.digest, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    sealing.add(kept)
    with pytest.raises(BadRequest, match="cannot verify it"):
        client.submit(short, "plain-", seal=True, verify="quorum:2").result(30)
