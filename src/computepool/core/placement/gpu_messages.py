"""The wording of conditions on drivers, CUDA and cards, as gate_messages.py uses it."""

from __future__ import annotations

from collections.abc import Callable

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import NodeRecord
from computepool.core.fleet.versions import describe, text_of
from computepool.core.resources import Shape

#: What a job needs, what a node has, and how nodes fail.
Words = tuple[Callable[[Shape], str], Callable[[Fleet, NodeRecord, Shape], str], Callable[[Shape, bool], str]]


def _capability(shape: Shape) -> str:
    return f"compute capability {text_of(shape.requirements.compute_capability)} or higher"


def _have_capability(_fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
    found = sorted({card.compute_capability for card in node.cards} - {0})
    return f"compute capability {' and '.join(map(text_of, found))}" if found else "no GPU of known compute capability"


def _version_words(column: str, name: str) -> Words:
    """For a condition on a version that nodes have, or do not have."""

    def need(shape: Shape) -> str:
        return f"{name} {describe(getattr(shape.requirements, column))}"

    def have(_fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
        number: int = getattr(node.profile, column)
        return f"{name} {text_of(number)}" if number else f"no {name}"

    return need, have, lambda shape, _: f"do not have {need(shape)}"


GPU_WORDS: dict[str, Words] = {
    "compute_capability": (_capability, _have_capability, lambda shape, _: f"have no GPU of {_capability(shape)}"),
    "cuda": _version_words("cuda", "CUDA"),
    "driver": _version_words("driver", "NVIDIA driver"),
}
