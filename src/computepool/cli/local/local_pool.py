"""A hub and a node on this machine, as processes that start and stop together, for `pool up` and `pool host`."""

from __future__ import annotations

import fcntl
import json
import math
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from computepool.cli import output
from computepool.cli.local.children import Child
from computepool.cli.node.options import CODE_ENV
from computepool.core.errors import ComputePoolError, Conflict, RateLimited, Unauthenticated, Unavailable
from computepool.sdk.client.config import Config, config_path, load_config, save_config, save_hub_keys

if TYPE_CHECKING:
    from computepool.sdk import Pool

HUB_START_S = 60.0
NODE_START_S = 60.0


class Stopped(Exception):
    """Ctrl-C or SIGTERM."""


class LocalPool:
    """The processes of one data folder. Leaving the block stops them, the node first so that it can return its jobs."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._children: list[Child] = []
        self._stop = threading.Event()
        self._lock = -1

    def __enter__(self) -> LocalPool:
        self.base.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._lock_folder()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stop.set())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for child in reversed(self._children):
            child.stop()
        os.close(self._lock)
        if self._stop.is_set():
            output.note("Stopped.")
        return kind is Stopped

    def _lock_folder(self) -> None:
        """Prevent concurrent starts: each would make a new key, and only one key would work."""
        self._lock = os.open(self.base / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Conflict(f"Already running in {self.base}. Stop it, or choose a different --data.") from None

    def start_hub(
        self, host: str, port: int, *, public_url: str = "", env: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Returns the administrator's key and one-time codes, which the hub sends through a pipe, never a file."""
        reading, writing = os.pipe()
        arguments = ["hub", "start", "--host", host, "--port", str(port), "--data", str(self.base)]
        arguments += ["--announce", str(writing), *(["--public-url", public_url] if public_url else [])]
        self._children.append(Child("hub", arguments, log=self.base / "hub.log", pass_fds=[writing], env=env))
        os.close(writing)
        with os.fdopen(reading) as pipe:
            self.until(lambda: bool(select.select([pipe], [], [], 0)[0]), timeout_s=HUB_START_S, what="The hub")
            text = pipe.read()
        if not text:
            self._children[-1].wait(2)
            self._check_alive()
        secrets: dict[str, str] = json.loads(text)
        return secrets

    def start_node(self, options: Sequence[str], *, url: str, code: str | None) -> None:
        """Passes the code in the environment, because every user of the machine can read a command line."""
        arguments = ["node", "start", "--hub", url, "--data", str(self.base), *options]
        env = {} if code is None else {CODE_ENV: code}
        self._children.append(Child("node", arguments, log=self.base / "node.log", env=env))

    def until(self, done: Callable[[], bool], *, timeout_s: float, what: str, give_up: bool = False) -> bool:
        """Wait for a condition while the children run. Prints a note after `timeout_s`; with `give_up`, returns False."""
        end = time.monotonic() + timeout_s
        while not done():
            if self._stop.wait(0.05):
                raise Stopped
            self._check_alive()
            if time.monotonic() > end:
                output.note(f"{what} is not ready after {timeout_s:.0f} s; still waiting. See {self._children[-1].log}")
                if give_up:
                    return False
                end = math.inf
        return True

    def wait(self) -> None:
        """Wait until the user stops it. Raises if one of the processes stops by itself."""
        while not self._stop.wait(0.3):
            self._check_alive()

    def _check_alive(self) -> None:
        for child in self._children:
            if not child.running:
                raise ComputePoolError(
                    f"The {child.name} stopped unexpectedly. End of {child.log}:\n{child.last_output()}"
                )


def sign_in(machine: LocalPool, url: str, key: str) -> Pool:
    """Wait for the hub, and store its address and key, so that the CLI in other terminals is signed in, too."""
    from computepool.sdk import connect

    pool = connect(url, key, retry_for=0)
    machine.until(lambda: _answers(pool), timeout_s=HUB_START_S, what="The hub")
    if config_path().exists() and load_config().hub != url:
        output.note(f"The CLI now uses {url} (previously {load_config().hub}).")
    save_config(Config(hub=url, key=key))
    save_hub_keys(url, pool.accounts.hub_keys())
    return pool


def _answers(pool: Pool) -> bool:
    """Whether our hub answers. Another hub that got the port first rejects the key."""
    try:
        pool.accounts.me()
    except (RateLimited, Unauthenticated, Unavailable):
        return False
    return True


def program() -> str:
    """How to call this program: as `pool` if the shell finds it, else by its path."""
    here = Path(sys.argv[0])
    if not here.exists() or shutil.which("pool") == str(here.absolute()):
        return "pool"
    try:
        return str(here.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(here.absolute())


@contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status, on a terminal in a line that is updated. Yields a function that changes the text."""
    if not sys.stderr.isatty():
        output.note(f"{text} …")
        yield lambda new: output.note(f"{new} …")
        return
    with output.console(stderr=True).status(f"{text} …") as status:
        yield lambda new: status.update(f"{new} …")
