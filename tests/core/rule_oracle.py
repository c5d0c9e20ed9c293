"""Owners' rules a second time, as an owner would say them. Shared with the code under test are only the values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from hypothesis import strategies as st

from computepool.core.placement.rules import Rules
from computepool.core.resources import NodeProfile, Shape

LABELS = ("ml", "mining", "render")
MINUTES = (0, 1, 10, 60, 600)

#: Mostly none, as in life; then one at a time, and some together.
RULES = (
    *[Rules()] * 6,
    Rules(allow_submitters=frozenset({"ann"})),
    Rules(deny_submitters=frozenset({"bob"})),
    Rules(allow_submitters=frozenset({"ann", "eve"}), deny_submitters=frozenset({"ann"})),
    Rules(allow_labels=frozenset({"ml", "render"})),
    Rules(deny_labels=frozenset({"mining"})),
    Rules(network=False),
    Rules(gpus=False),
    Rules(minutes_max=10),
    Rules(minutes_max=60, deny_labels=frozenset({"ml"})),
    Rules(ram_mb_max=256),
    Rules(disk_mb_max=256, network=False),
    Rules(score_min=0.5),
    Rules(score_min=1.0, minutes_max=600),
)
SCORES = (0.0, 0.25, 0.5, 1.0)
UNKNOWN_SCORE = 0.71


def rule_gates(
    profile: NodeProfile, rules: Rules, shape: Shape, *, scores: dict[str, float], idle: bool
) -> dict[str, bool]:
    wanted, account = shape.requirements, shape.account
    own = profile.owner == account
    wants_cards = wanted.gpus > 0 or wanted.vram_mb > 0
    listed = not rules.allow_submitters or account in rules.allow_submitters
    labelled = not rules.allow_labels or any(label in rules.allow_labels for label in wanted.labels)
    return {
        "network": not wanted.network or (profile.network and (own or rules.network)),
        "rule_submitter": own or (listed and account not in rules.deny_submitters),
        "rule_label": own or (labelled and not any(label in rules.deny_labels for label in wanted.labels)),
        "rule_gpu": own or rules.gpus or not wants_cards,
        "rule_minutes": own or rules.minutes_max is None or wanted.minutes <= rules.minutes_max,
        "rule_ram": own or rules.ram_mb_max is None or wanted.ram_mb <= rules.ram_mb_max,
        "rule_disk": own or rules.disk_mb_max is None or wanted.disk_mb <= rules.disk_mb_max,
        "submitter_reputation": own or idle or scores.get(account, UNKNOWN_SCORE) >= rules.score_min,
    }


#: Expressions, and what they mean for tags and properties.
REQUIRES: dict[str, Callable[[Collection[str], Collection[tuple[str, str]]], bool]] = {
    "tag.linux": lambda tags, _: "linux" in tags,
    'tag.lab and not tag["gpu"]': lambda tags, _: "lab" in tags and "gpu" not in tags,
    'os == "debian" or net == "fast"': lambda _, has: ("os", "debian") in has or ("net", "fast") in has,
    'not (tag.gpu or property["os"] != "macos")': lambda tags, has: "gpu" not in tags and ("os", "macos") in has,
    'os in ("debian", "macos") and net not in ["fast"]': lambda _, has: (
        bool({("os", "debian"), ("os", "macos")} & set(has)) and ("net", "fast") not in has
    ),
}


def subsets(values: Iterable[object]) -> st.SearchStrategy[frozenset[object]]:
    return st.frozensets(st.sampled_from(list(values)), max_size=2)


def mostly_empty(values: Iterable[object]) -> st.SearchStrategy[frozenset[object]]:
    return st.just(frozenset()) | subsets(values)
