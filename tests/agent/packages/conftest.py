from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.packages.local_index import Index, indexing


@pytest.fixture
def index() -> Iterator[Index]:
    with indexing() as found:
        yield found
