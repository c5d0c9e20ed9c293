"""Where nodes are shown: in their region, always at the same spot, never on each other, and nowhere by guess."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from computepool.core.places import REGIONS, UNKNOWN, parse_place, place_of, region_called
from computepool.core.trust import tiers

IDS = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=1, max_size=26).map("node_{}".format)


def distance(lat: float, lon: float, *, other_lat: float, other_lon: float) -> float:
    """In degrees on the ground."""
    east = abs(lon - other_lon) % 360
    return math.hypot(lat - other_lat, min(east, 360 - east) * math.cos(math.radians(other_lat)))


@given(st.sampled_from(sorted(REGIONS)), IDS)
def test_a_node_is_shown_inside_its_region_and_stays_there(code: str, node_id: str) -> None:
    region, place = REGIONS[code], place_of(code, node_id)
    assert place == place_of(code.upper(), node_id)
    assert place.lat is not None
    assert place.lon is not None
    assert -90 <= place.lat <= 90
    assert -180 <= place.lon <= 180
    apart = distance(place.lat, place.lon, other_lat=region.lat, other_lon=region.lon)
    assert apart <= region.spread + 0.01
    assert place.label == region.name


@given(st.floats(-90, 90), st.floats(-180, 180), IDS)
def test_a_stated_place_is_kept_to_a_tenth_of_a_degree(lat: float, lon: float, node_id: str) -> None:
    place = place_of("de", node_id, stated=(lat, lon))
    assert place.lat is not None
    assert place.lon is not None
    assert distance(place.lat, place.lon, other_lat=lat, other_lon=lon) < 0.15
    assert place.label == "Germany, stated by its owner"


def test_nodes_of_one_region_do_not_lie_on_each_other() -> None:
    spots = {(place.lat, place.lon) for place in (place_of("lu", f"node_{n}") for n in range(500))}
    assert len(spots) > 490


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("in", "India"),
        ("INDIA", "India"),
        ("gb", "United Kingdom"),
        ("uk", "United Kingdom"),
        ("united-states", "United States"),
        ("us-east", "United States, east"),
        ("us-east-b", "United States, east"),
        ("us-nowhere", "United States"),
        ("el", "Greece"),
    ],
)
def test_words_for_regions(word: str, name: str) -> None:
    region = region_called(word)
    assert region is not None
    assert region.name == name


def test_what_is_not_known_has_no_place_and_says_so() -> None:
    assert place_of("", "node_1").label == UNKNOWN
    unknown = place_of("atlantis", "node_1")
    assert (unknown.lat, unknown.lon) == (None, None)
    assert "atlantis" in unknown.label


def test_every_price_region_is_on_the_map() -> None:
    for region in {*tiers._REGION_ALIASES.values(), "us", "in"}:
        assert region_called(region) is not None, region


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "x,y", "91,0", "0,181", "nan,0", "inf,1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="LATITUDE,LONGITUDE"):
        parse_place(text)


def test_a_place_is_rounded_before_it_leaves_the_machine() -> None:
    assert parse_place("52.5163,13.3777") == (52.5, 13.4)
