"""Cards and places are named as their makers and drivers really spell them."""

from __future__ import annotations

import re

import pytest

from computepool.core.resources import CPU_TIERS
from computepool.core.trust.tiers import GPU_PATTERNS, OTHER_FAMILY, TIER_SPEED, family_of, region_of, speed_of, tier_of

CARDS = [
    ("NVIDIA GeForce RTX 5090", "rtx-5090"),
    ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090"),
    ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070"),
    ("GeForce RTX3090", "rtx-3090"),
    ("NVIDIA GeForce RTX 3060 Ti", "rtx-3060"),
    ("NVIDIA GeForce RTX 2070 SUPER", "rtx-2070"),
    ("NVIDIA GeForce GTX 1080 Ti", "gtx-1080ti"),
    ("GeForce GTX 1080", "gtx-1080"),
    ("NVIDIA GeForce GTX 1660 SUPER", "gtx-1660"),
    ("NVIDIA A100-SXM4-80GB", "a100"),
    ("NVIDIA A100 80GB PCIe", "a100"),
    ("NVIDIA A10", "a10"),
    ("NVIDIA A10G", "a10"),
    ("NVIDIA H100 80GB HBM3", "h100"),
    ("NVIDIA H200", "h200"),
    ("NVIDIA GH200 480GB", "gh200"),
    ("NVIDIA GB200", "b200"),
    ("NVIDIA L4", "l4"),
    ("NVIDIA L40S", "l40s"),
    ("NVIDIA L40", "l40"),
    ("Tesla T4", "t4"),
    ("Tesla V100-SXM2-16GB", "v100"),
    ("Tesla P100-PCIE-16GB", "p100"),
    ("NVIDIA RTX A6000", "rtx-a6000"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
    ("Quadro RTX 5000", "quadro-rtx-5000"),
    ("AMD Instinct MI300X", "mi300x"),
    ("AMD Instinct MI250X / MI250", "mi250x"),
    ("AMD Radeon(TM) RX 7900 XTX", "rx-7900xtx"),
    ("Radeon RX 6800", "rx-6800"),
    ("Intel(R) Arc(TM) A770 Graphics", "arc-a770"),
    ("Apple M2 Max", "apple-m2-max"),
    ("Apple M1", "apple-m1"),
    ("NVIDIA GeForce RTX 6090", "rtx-6090"),
    ("NVIDIA GeForce RTX 7060 Ti", "rtx-7060"),
    ("NVIDIA GeForce GTX 970", "gtx-970"),
    ("NVIDIA RTX PRO 4500 Blackwell", "rtx-pro-4500"),
    ("NVIDIA B400", "b400"),
    ("NVIDIA H300 SXM", "h300"),
    ("Intel(R) Arc(TM) B580 Graphics", "arc-b580"),
    ("Matrox G200eR2", "gpu"),
    ("NVIDIA T400 4GB", "gpu"),
    *((name, "gpu") for name in ("4090", "Fake 4090", "GTX 4090", "Radeon 4090")),
    ("", "cpu"),
    ("  ", "cpu"),
]


@pytest.mark.parametrize(("name", "tier"), CARDS)
def test_a_card_gets_its_tier(name: str, tier: str) -> None:
    assert tier_of(name) == tier
    assert tier_of(name.upper()) == tier


PRICE_TABLE = {
    "rtx-5090": 300,
    "rtx-4090": 300,
    "rtx-3090": 250,
    "rtx-4070": 250,
    "rtx-3080": 200,
    "rtx-3060": 200,
    "rtx-2070": 200,
    "gtx-1080ti": 150,
    "gtx-1080": 150,
    "gtx-1660": 130,
    "gpu": 100,
    "cpu": 80,
}


def test_the_speeds_of_the_price_table_hold() -> None:
    assert {tier: TIER_SPEED[tier] for tier in PRICE_TABLE} == PRICE_TABLE


def test_speeds_are_positive_whole_numbers() -> None:
    assert all(type(speed) is int and speed > 0 for speed in TIER_SPEED.values())


def test_data_centre_cards_are_faster_than_any_desktop_card() -> None:
    desktop = max(speed for tier, speed in TIER_SPEED.items() if tier.startswith(("rtx-50", "rtx-40", "rx-")))
    assert min(TIER_SPEED[tier] for tier in ("a100", "h100", "h200", "mi300x")) > desktop


def test_an_unlisted_tier_counts_as_an_unknown_gpu() -> None:
    assert speed_of("apple-m1") == speed_of("gpu") == 100


def test_every_tier_with_a_speed_can_be_reached_by_a_card_name() -> None:
    """A speed for a tier that no pattern produces would be a typing error."""
    for tier in TIER_SPEED.keys() - {*CPU_TIERS, "gpu"}:
        spoken = re.sub(r"(?<=\d)(xtx|xt|ti)$", r" \1", tier)
        assert tier_of(spoken) == tier


def test_patterns_compile() -> None:
    assert all(re.compile(pattern) for pattern, _ in GPU_PATTERNS)


PLACES = [
    ("india", "in"),
    ("IN", "in"),
    ("gb", "uk"),
    ("UK", "uk"),
    ("de", "eu"),
    ("France", "eu"),
    ("EU", "eu"),
    ("us", "us"),
    ("JP", "jp"),
    (" br ", "br"),
    ("", ""),
]


@pytest.mark.parametrize(("place", "region"), PLACES)
def test_a_place_gets_its_region(place: str, region: str) -> None:
    assert region_of(place) == region
    assert region_of(region) == region, "looking up a region again changes nothing"


@pytest.mark.parametrize(
    ("family", "tiers"),
    [
        ("processor", "cpu cpu-slow cpu-tiny"),
        ("data centre card", "h100 h300 b400 gh200 b200 a10 a100 l4 l40s t4 v100 p40 k80 mi300x mi250"),
        ("workstation card", "rtx-a6000 rtx-6000-ada rtx-pro-6000 quadro-rtx-5000"),
        ("desktop card", "rtx-4090 rtx-6090 gtx-970 gtx-1080ti titan-rtx rx-7900xtx arc-a770"),
        (OTHER_FAMILY, "gpu apple-m2-max something-new"),
    ],
)
def test_a_tier_belongs_to_one_of_few_families(family: str, tiers: str) -> None:
    assert {family_of(tier) for tier in tiers.split()} == {family}


def test_every_tier_with_a_speed_has_a_family_of_its_own() -> None:
    assert {tier for tier in TIER_SPEED if family_of(tier) == OTHER_FAMILY} == {"gpu"}


def test_a_slice_of_a_card_is_not_that_card() -> None:
    """Unknown until it is measured, and of the card's family, within which a measurement finds its tier."""
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert tier_of(name) == "h100-mig"
    assert speed_of("h100-mig") == speed_of("gpu")
    assert family_of("h100-mig") == family_of("h100")
    assert tier_of("NVIDIA Mighty H100") == "h100"
