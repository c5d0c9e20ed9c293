"""Acceptance tests run whole pools of real processes, made and checked as in the fault tests."""

from __future__ import annotations

from tests.faults.conftest import make_pool

__all__ = ["make_pool"]
