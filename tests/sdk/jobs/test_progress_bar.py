"""The progress bar in a notebook, displayed by IPython."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from computepool import Pool
from computepool.sdk.jobs.progress_bar import Bar, in_notebook


class Sent(DisplayPublisher):  # type: ignore[misc]
    """Records the messages to the browser."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.messages: list[tuple[dict[str, str], bool]] = []

    def publish(self, data: Any, metadata: Any = None, **kwargs: Any) -> None:
        self.messages.append((data, bool(kwargs.get("update"))))


@pytest.fixture
def notebook(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own there
    hooks = sys.displayhook, sys.excepthook
    shell = InteractiveShell.instance(display_pub_class=Sent)
    shell.kernel = object()
    try:
        yield shell.display_pub
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
        InteractiveShell.clear_instance()
        sys.displayhook, sys.excepthook = hooks


@pytest.mark.soak
def test_a_notebook_gets_one_output_that_is_replaced(
    notebook: Sent, pool: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_notebook()
    assert sum(pool.map(abs, range(100))) == 4950
    (first, replaced), *later = notebook.messages
    assert (first["text/plain"], replaced) == ("map 0/100 in 0 s", False)
    assert all(update for _, update in later)
    assert later[-1][0]["text/html"].startswith('<progress value="100" max="100">')
    assert not capsys.readouterr().err


@pytest.mark.soak
def test_a_notebook_shows_no_bar_if_progress_is_off(notebook: Sent, pool: Pool) -> None:
    assert sum(pool.map(abs, range(10), progress=False)) == 45
    assert not notebook.messages


@pytest.mark.soak
def test_a_label_is_escaped(notebook: Sent) -> None:
    bar = Bar("<script>", total=None)
    bar.add(3)
    bar.stop()
    assert "<script>" not in "".join(data["text/html"] for data, _ in notebook.messages)


def test_a_terminal_is_not_a_notebook() -> None:
    assert not in_notebook()
