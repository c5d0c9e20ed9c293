"""Which card a job goes to: the faster one, unless much of its memory would lie idle."""

from __future__ import annotations

import pytest

from computepool.core.placement import allocator
from computepool.core.trust.tiers import TIER_SPEED
from tests.core.placement.test_allocator import chosen, fleet_of, gpu, node, shape

#: tier → GB on its card, and cores of a machine one finds it in
CARDS = {
    "gtx-1080": (8, 4),
    "rtx-3060": (12, 8),
    "rtx-3090": (24, 16),
    "rtx-4070": (12, 12),
    "rtx-4090": (24, 24),
    "rtx-5090": (32, 24),
    "rtx-a6000": (48, 32),
    "a100": (40, 32),
    "h100": (80, 64),
    "b200": (192, 128),
}
CASES = [
    # Up to 20 GB idle is no large waste: the faster tier wins.
    *(("rtx-3060 rtx-4090", asked, "rtx-4090") for asked in (4, 5, 6, 8, 10, 11, 12)),
    ("rtx-3060 rtx-4070", 8, "rtx-4070"),
    ("rtx-3090 rtx-4090", 16, "rtx-4090"),
    ("gtx-1080 rtx-3060", 4, "rtx-3060"),
    ("rtx-4090 a100", 24, "a100"),
    ("a100 h100", 60, "h100"),
    # A card of which more lies idle is left for who needs it, however fast it is.
    ("rtx-3060 h100", 8, "rtx-3060"),
    ("rtx-4090 h100", 8, "rtx-4090"),
    ("rtx-4090 h100", 24, "rtx-4090"),
    ("gtx-1080 b200", 1, "gtx-1080"),
    ("rtx-3060 rtx-a6000", 8, "rtx-3060"),
    ("rtx-3060 rtx-4090 a100", 8, "rtx-4090"),
    ("rtx-4090 rtx-5090", 4, "rtx-4090"),
    ("a100 h100", 40, "a100"),
    ("rtx-3060 rtx-4090 rtx-a6000 a100 h100 b200", 12, "rtx-4090"),
    ("h100 b200", 8, "h100"),
    # Without an amount a job takes a whole card, so that nothing of it is idle.
    ("rtx-3060 rtx-4090 h100", 0, "h100"),
]


@pytest.mark.parametrize("job_cores", [1, 4])
@pytest.mark.parametrize(("tiers", "asked_gb", "winner"), CASES)
def test_the_faster_tier_wins_unless_the_waste_is_large(tiers: str, asked_gb: int, winner: str, job_cores: int) -> None:
    wanted = shape(gpus=1, vram_mb=asked_gb * 1_000, cpu_milli=job_cores * 1_000)
    for order in (tiers.split(), tiers.split()[::-1]):
        nodes = (node(tier, gpu(CARDS[tier][0], tier), cores=CARDS[tier][1]) for tier in order)
        assert chosen(fleet_of(*nodes), wanted) == [winner]


def test_a_stated_wish_outranks_the_own_node_and_that_every_other_term() -> None:
    ours = (
        allocator.FIT_VRAM_WEIGHT
        + allocator.FIT_CORES_WEIGHT
        + allocator.RELIABILITY_WEIGHT
        + allocator.TIER_SPEED_WEIGHT * max(TIER_SPEED.values()) / 100
    )
    assert ours < allocator.OWN_NODE_WEIGHT
    assert ours + allocator.OWN_NODE_WEIGHT < allocator.PREFERRED_TAGS_WEIGHT / 2
