"""The wording of conditions on drivers, cards, packages and images, as gate_messages.py uses it."""

from __future__ import annotations

from collections.abc import Callable

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import NodeRecord
from computepool.core.fleet.versions import describe, text_of
from computepool.core.resources import UPLOADED, Requirements, Shape
from computepool.core.words import pluralize

#: Dependencies named in a sentence.
_SOFTWARE_NAMED_MAX = 5
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


def _need_software(shape: Shape) -> str:
    needs = shape.requirements
    return f"an environment with {software(needs)}" if needs.offered_only else software(needs)


def _have_software(_fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
    if not node.profile.environments:
        return "offers no environment"
    return f"offers {pluralize(len(node.profile.environments), 'environment')} without it"


def _fail_software(shape: Shape, _busy: bool) -> str:
    needs = shape.requirements
    return f"do not have {software(needs)}{'' if needs.offered_only else ' and cannot install it'}"


def software(needs: Requirements) -> str:
    """The dependencies, shortened: `numpy, torch>=2.4 and 3 more`."""
    listed = sorted(needs.software)
    more = len(listed) - _SOFTWARE_NAMED_MAX
    named = ", ".join(listed[:_SOFTWARE_NAMED_MAX])
    return f"{named} and {more} more" if more > 0 else named


def _images_from(shape: Shape) -> str:
    source = shape.requirements.image_source
    return "uploaded images" if source == UPLOADED else f"images from {source}"


def _have_image(_fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
    registries = sorted(node.profile.registries - {UPLOADED})
    if not node.profile.registries:
        return "no images: it has no sandbox of its own files"
    return f"images from {', '.join(registries)}" if registries else "uploaded images only"


SOFTWARE_WORDS: dict[str, Words] = {
    "compute_capability": (_capability, _have_capability, lambda shape, _: f"have no GPU of {_capability(shape)}"),
    "cuda": _version_words("cuda", "CUDA"),
    "driver": _version_words("driver", "NVIDIA driver"),
    "software": (_need_software, _have_software, _fail_software),
    "image": (
        lambda shape: f"a node that runs {_images_from(shape)}",
        _have_image,
        lambda shape, _: f"do not run {_images_from(shape)}",
    ),
}
