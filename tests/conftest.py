"""Fixtures every area may use, and the rule that nothing is skipped where CI=true."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The project runs on asyncio only; without this, every async test would also run on trio."""
    return "asyncio"
