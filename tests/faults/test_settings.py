"""Settings that would make every node fail every job are refused at the start, with a sentence."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from computepool.hub.settings import Settings


def test_a_lease_is_longer_than_the_time_a_node_stops_before_its_end() -> None:
    assert Settings(lease_min_s=11, self_fence_s=10).lease_rules().lease_min_ms == 11_000
    with pytest.raises(ValidationError, match="self_fence_s must be less than lease_min_s"):
        Settings(lease_min_s=10, self_fence_s=10)
