"""Requirement expressions: what they mean, and what is refused."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

from computepool.core.expressions import CHARS_MAX, DEPTH_MAX, TERMS_MAX, check, parse
from computepool.core.fleet.features import Feature, Mask
from computepool.core.placement.software_gates import find_matching

ATOMS = {
    "tag.ssd": "ssd",
    'tag["gpu-box"]': "gpu-box",
    "tag.a.b": "a.b",
    'site == "lab-3"': ("site", "lab-3"),
    'property["my-key"] == "x y"': ("my-key", "x y"),
}
FEATURES: list[Feature] = list(ATOMS.values())


def meets(text: str, features: set[Feature]) -> bool:
    def has(feature: Feature) -> Mask:
        return np.array([feature in features])

    return bool(find_matching(parse(text), has)[0])


#: Expressions with what they mean in Python's own words.
texts = st.recursive(
    st.sampled_from(sorted(ATOMS)).map(lambda atom: (atom, f"({ATOMS[atom]!r} in has)")),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", f"(not {one[1]})")),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda both: (f"({both[0][0]}) {both[1]} ({both[2][0]})", f"({both[0][1]} {both[1]} {both[2][1]})")
        ),
    ),
    max_leaves=6,
)


@given(pair=texts, features=st.sets(st.sampled_from(FEATURES)))
def test_an_expression_means_what_python_would_say(pair: tuple[str, str], features: set[Feature]) -> None:
    text, meaning = pair
    if len(text) <= CHARS_MAX:
        assert meets(text, features) == eval(meaning, {"has": features})


def test_comparisons() -> None:
    lab: set[Feature] = {("site", "lab-3")}
    assert meets('site != "lab-4"', lab)
    assert meets('site != "lab-3"', set())
    assert meets('site in ("lab-1", "lab-3")', lab)
    assert not meets('site not in ["lab-1", "lab-3"]', lab)
    assert meets('not tag.a and tag.b or site == "lab-3"', lab)  # as in Python, `and` binds more than `or`


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tag",
        "tag.ssd and",
        "ssd",
        "tag.ssd == 'x'",
        "tag[0]",
        "site == lab",
        "site == 3",
        'site < "a"',
        '"a" == site',
        'a == "b" == "c"',
        'site in "lab"',
        "site in ()",
        "__import__('os').system('true')",
        "tag.ssd if tag.a else tag.b",
        "(x := 3)",
        "lambda: 0",
        "[tag.a for tag in tag]",
        'f"{tag.a}"',
        "tag.a\n and tag.b",
        'site == "\\x41"',
        "not " * (DEPTH_MAX + 2) + "tag.a",
        "(" * 240 + "tag.a" + ")" * 240,
        " or ".join(f"tag.t{number}" for number in range(TERMS_MAX + 1)),
        "tag.a or " * 200 + "tag.a",
        "9" * 480,
        "tag.a \u202e",
    ],
)
def test_anything_else_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        check(text)
    assert "\n" not in str(refused.value)


def test_the_longest_expressions_are_read_quickly() -> None:
    since = time.process_time()
    for number in range(100):
        text = " and ".join(f'p{number} == "{number}"' for number in range(TERMS_MAX // 4)) + f" or tag.t{number}"
        parse(text)
    assert time.process_time() - since < 2
