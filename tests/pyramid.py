"""What `make test` leaves to `make soak`, beside the tests that are marked `soak` one by one.

Most tests hold for several databases or sandbox levels. `make test` runs them on SQLite, or with bubblewrap, and
`make soak` runs the rest. Where the difference is the subject, a test has all its cases in `make test`: in the
folders below, and with the mark `every_case`. Loaded by the root conftest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
#: Here SQL itself is tested, or what it guards; real processes use SQLite here too.
_BOTH_DATABASES = tuple(_TESTS / folder for folder in ("hub/db", "hub/money/ledger", "faults", "testing"))
#: These take longest, so they start first: nobody waits for the last of them alone.
_LONG = tuple(
    _TESTS / file
    for file in (
        "acceptance/test_detached.py",
        "web/test_every_page.py",
        "agent/test_real_hub.py",
        "acceptance/test_examples.py",
        "faults/test_hub_killed.py",
        "faults/test_database_killed.py",
        "hub/money/payouts/test_crashes.py",
        "sdk/test_real.py",
        "web/test_stored_words.py",
        "cli/test_up.py",
        "faults/test_network.py",
    )
)
_OTHER_LEVELS = frozenset(("process", "container", "gvisor"))


def _is_extra(item: pytest.Function) -> bool:
    if item.get_closest_marker("every_case") or not hasattr(item, "callspec"):
        return False
    words = {value for value in item.callspec.params.values() if isinstance(value, str)}
    both = any(map(item.path.is_relative_to, _BOTH_DATABASES)) and not item.get_closest_marker("process")
    return bool(words & _OTHER_LEVELS) or ("postgresql" in words and not both)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _is_extra(item):
            item.add_marker("soak")
    items.sort(key=lambda item: _LONG.index(item.path) if item.path in _LONG else len(_LONG))
