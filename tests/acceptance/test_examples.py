"""The promises of the README and the examples, run as written against a real `pool up`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from computepool.testing.processes import free_port
from computepool.testing.waiting import wait_until

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
#: Training needs torch, which is too large to install for a test: tests/gpu runs it.
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "train_gpu.py")
#: What each example must print.
PROMISES = {
    "hello.py": r"Hello from job job_\w+",
    "detached_group.py": r"bundle-a: 9 words, in bundle-a.db",
    "executor.py": r"^\S+ +[0-9a-f]{16}$",
    "gang_allreduce.py": r"rank 0 of 1: every number is 1",
    "map.py": r"1007 primes below 8000$",
    "pep723.py": r"A terabyte is 1\.0 TB",
    "picture.py": r"\d{3,} bytes, made by job_\w+",
    "slices.py": r"results/3/part.json",
}


@dataclass(frozen=True)
class Terminal:
    """A second terminal beside `pool up`: its own folder, the same configuration."""

    folder: Path
    env: dict[str, str]

    def run(self, line: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            shlex.split(line), cwd=self.folder, env=self.env, text=True, capture_output=True, timeout=timeout_s, check=False
        )  # fmt: skip


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory(prefix="computepool-examples-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # jobs run as users of their own and must be able to pass
        (folder / "examples").symlink_to(ROOT / "examples")
        env = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTEPOOL_")}
        env |= {"COMPUTEPOOL_CONFIG": str(folder / "config.json"), "PYTHONUNBUFFERED": "1"}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        command = ["pool", "up", "--port", str(free_port()), "--data", str(folder / "data")]
        log = folder / "up.out"
        with log.open("w") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
        try:
            wait_until(lambda: _says(process, log, "Try this in another terminal"), 90, "`pool up` is ready")
            yield Terminal(folder, env)
        finally:
            process.terminate()
            process.wait(30)


def _says(process: subprocess.Popen[bytes], log: Path, words: str) -> bool:
    assert process.poll() is None, log.read_text()
    return words in log.read_text()


@pytest.mark.soak
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_as_its_docstring_says(terminal: Terminal, example: Path) -> None:
    [line] = re.findall(r"^Run:\s+(.+)$", example.read_text(), re.M)
    done = terminal.run(line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(PROMISES[example.name], done.stdout + done.stderr, re.M), done.stdout


def test_the_readmes_python_runs_and_prints_what_it_says(terminal: Terminal) -> None:
    [code] = re.findall(r"```python\n(.+?)```", (ROOT / "README.md").read_text(), re.S)
    script = terminal.folder / "readme.py"
    script.write_text(code)
    done = terminal.run(f"{sys.executable} {script}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["144", "332833500"]


def test_the_readmes_first_command_shows_logs_and_the_end(terminal: Terminal) -> None:
    readme = (ROOT / "README.md").read_text()
    assert "source .venv/bin/activate" in readme
    assert "pool submit examples/hello.py --wait" in readme
    done = terminal.run("pool submit examples/hello.py --wait")
    assert done.returncode == 0
    assert "Hello from job" in done.stdout


@pytest.mark.soak
def test_commands_named_in_the_readme_exist(terminal: Terminal) -> None:
    """Every `pool …` line of the README and of docs/hub.md names a command and options that the program has."""
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs" / "hub.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.+?)```", pages, re.S) for line in block.splitlines()]
    found = [call for line in lines for call in re.findall(r"(?:^|\s)pool ([a-z].*?)(?=\s{2,}|\s#|\s&|$)", line)]
    assert len(found) >= 15
    for call in found:
        before_dashes = call.split(" -- ")[0].split()
        command = [word for word in before_dashes[:2] if re.fullmatch(r"[a-z]+", word)]
        shown = terminal.run(f"pool {' '.join(command)} --help")
        assert shown.returncode == 0, f"pool {call}: {shown.stderr}"
        for option in re.findall(r"--[a-z-]+", " ".join(before_dashes)):
            assert option in shown.stdout, f"pool {call}: no option {option}"


@pytest.mark.soak
def test_a_second_machine_joins_with_the_printed_command(terminal: Terminal) -> None:
    """`pool node code` prints what to type elsewhere; typed here with its own folder, it becomes a second node."""
    printed = terminal.run("pool node code").stdout
    [line] = re.findall(r"pool node start .*", printed)
    log = terminal.folder / "second.out"
    env = terminal.env | {"COMPUTEPOOL_DATA": str(terminal.folder / "second")}
    command = [*shlex.split(line), "--name", "second", "--tag", "studio"]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env)
    try:
        wait_until(lambda: "second" in terminal.run("pool nodes").stdout, 60, "it is a node")
        done = terminal.run("pool submit --tag studio --wait -- echo from the studio")
        assert (done.returncode, "from the studio" in done.stdout) == (0, True), done.stderr
    finally:
        process.terminate()
        process.wait(30)
