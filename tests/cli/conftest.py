from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from computepool.cli.main import main
from computepool.sdk.client.config import Config, save_config
from computepool.sdk.pool import Pool, connect
from tests.sdk.fake_hub import FakeHub

if TYPE_CHECKING:
    from computepool.testing.processes import RealPool


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def reply(ran: Ran) -> Any:
    """The JSON that a successful command printed."""
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("COMPUTEPOOL_DATA", str(tmp_path / "data"))
    for name in ("COMPUTEPOOL_HUB", "COMPUTEPOOL_KEY", "COMPUTEPOOL_DEBUG", "COMPUTEPOOL_CODE"):
        monkeypatch.delenv(name, raising=False)


def sign_in(real: RealPool) -> None:
    """As the administrator."""
    save_config(Config(hub=real.hubs[0].url, key=real.admin_key))


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A hub that the command line is signed in to."""
    with FakeHub() as hub:
        save_config(Config(hub=hub.url, key="cp_test"))
        yield hub


@pytest.fixture
def pool(real: RealPool) -> Iterator[Pool]:
    """Connected as the administrator of the module's `real`, and signed in."""
    sign_in(real)
    with connect() as pool:
        yield pool


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the console script in this process."""

    def run_pool(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["pool", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_pool
