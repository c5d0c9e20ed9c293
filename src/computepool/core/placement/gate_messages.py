"""The wording of gates: what a job needs, what a node has, how nodes fail.

Wording only, no decisions. Sizes are decimal as on the box of a GPU: 24 GB is 24 000 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import NodeRecord, cards_needed
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.isolation import Level
from computepool.core.money.market import Offer
from computepool.core.money.money import format_credits, round_up
from computepool.core.placement.rules import ASPECTS, Demand
from computepool.core.placement.software_messages import SOFTWARE_WORDS
from computepool.core.pythons import any_version, newest_last
from computepool.core.resources import Requirements, Shape
from computepool.core.words import cores, memory_size

_BOTH = 2
_ITS_OWNER = "its owner "
#: What a node that takes no jobs must become to take some.
_RESTED = {
    NodeStatus.OFFLINE: "online",
    NodeStatus.PAUSED: "resumed",
    NodeStatus.DRAINING: "resumed",
    NodeStatus.UNRESPONSIVE: "responsive",
}
_VERBS = {
    "lend": "lends",
    "have": "has",
    "are": "is",
    "lack": "lacks",
    "run": "runs",
    "do": "does",
    "belong": "belongs",
}
#: The beginning of a negative statement about several nodes, and the verb that follows "no node" instead.
_DENIALS = {
    "do not have ": "has ",
    "do not take ": "takes ",
    "do not accept ": "accepts ",
    "do not run ": "runs ",
    "are not ": "is ",
    "have no ": "has a ",
}


def any_of(words: Iterable[str]) -> str:
    return " or ".join(sorted(words))


def all_of(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def pairs(properties: Iterable[tuple[str, str]]) -> str:
    return all_of(f"{key}={value}" for key, value in properties)


@dataclass(frozen=True, slots=True)
class GateMessages:
    need: Callable[[Shape], str]
    have: Callable[[Fleet, NodeRecord, Shape], str]
    #: Follows "31 of 40 nodes …" and begins with the verb. The second argument says whether some are only busy. For rules:
    #: the jobs that they refuse.
    fail: Callable[[Shape, bool], str]


def need(gate: str, shape: Shape) -> str:
    """What the job needs: `24 GB of VRAM`."""
    return WORDS[gate].need(shape)


def have(gate: str, fleet: Fleet, shape: Shape, *, row: int) -> str:
    """What the node has: `16 GB of VRAM free`."""
    return WORDS[gate].have(fleet, fleet.node_at(row), shape)


def describe_failing(gate: str, shape: Shape, *, count: int, total: int, busy: bool) -> str:
    """`31 of 40 nodes have less than 24 GB of free VRAM`."""
    words = WORDS[gate].fail(shape, busy)
    return _describe_refusal(words, count, total) if gate in RULE_WORDS else _of_nodes(words, count, total)


def describe_resting(nodes: Sequence[NodeRecord], *, total: int) -> str:
    """For nodes that take no jobs: `2 of 3 nodes are paused`."""
    return _of_nodes(f"are {rest_words(nodes)}", len(nodes), total)


def rest_words(nodes: Iterable[NodeRecord]) -> str:
    """Why nodes take no jobs: `paused`, `offline or paused`."""
    return any_of({(node.rest or NodeStatus.OFFLINE).label for node in nodes})


def describe_remedy(nodes: Iterable[NodeRecord]) -> str:
    """What nodes that take no jobs must become to take some."""
    found = {node.rest or NodeStatus.OFFLINE for node in nodes}
    return _RESTED.get(found.pop(), "available") if len(found) == 1 else "available"


def of_host(fleet: Fleet, shape: Shape, *, row: int, busy: Mapping[str, bool]) -> str:
    """Why one host does not take the job: `studio's owner takes jobs of at most 5 minutes`, `studio is paused`.

    `busy`: the gates that the host fails, and whether it would pass them if it were idle. The host is named once.
    """
    name = fleet.node_at(row).profile.name
    found: list[str] = []
    for gate, filled in busy.items():
        sentence = _of_host(gate, fleet, shape, row=row, busy=filled)
        if found:
            sentence = sentence.replace(f"{name}'s owner ", _ITS_OWNER).removeprefix(f"{name} ")
        found.append(sentence)
    return " and ".join(found)


def _of_host(gate: str, fleet: Fleet, shape: Shape, *, row: int, busy: bool) -> str:
    name, has = fleet.node_at(row).profile.name, have(gate, fleet, shape, row=row)
    if has.startswith(_ITS_OWNER):
        return f"{name}'s owner {has.removeprefix(_ITS_OWNER)}"
    if gate == "price":
        return f"{describe_ceiling(shape)}, and the price of {name} is {has}"
    if gate == "available":
        return f"{name} is {has}"
    return f"{name} {_singular(WORDS[gate].fail(shape, busy))}"


def _singular(words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{_VERBS.get(verb, verb)} {rest}".replace(" their ", " its ")


def _of_nodes(words: str, count: int, total: int) -> str:
    if count == total > 1:
        for denial, verb in _DENIALS.items():
            if words.startswith(denial):
                return f"no node {verb}{words.removeprefix(denial)}".replace(" their ", " its ")
    sentence = _singular(words) if count == 1 else words
    if count < total:
        return f"{count} of {total} nodes {sentence}"
    return f"the only node {sentence}" if total == 1 else f"{_every(total)} nodes {sentence}"


def _every(total: int) -> str:
    return "both" if total == _BOTH else f"all {total}"


def _describe_refusal(words: str, count: int, total: int) -> str:
    """Decisions of owners are stated as such, not as deficiencies of the machine."""
    if total == 1:
        return f"the owner's rules refuse {words}"
    which = _every(total) if count == total else f"{count} of {total}"
    return f"the owners' rules of {which} nodes refuse {words}"


def name_with_id(fleet: Fleet, word: str) -> str:
    node = fleet.get(word)
    return word if node is None else f"{node.profile.name} ({word})"


def _fail_ram(shape: Shape, busy: bool) -> str:
    needs = shape.requirements
    if busy and needs.ram_by_cores:
        return f"have no share of RAM free for {cores(needs.cpu_milli / 1_000)}"
    return f"have less than {memory_size(needs.ram_mb, up=True)} of {'free ' if busy else ''}RAM"


def describe(needs: Requirements) -> str:
    parts = [cores(needs.cpu_milli / 1_000)]
    if not needs.ram_by_cores:
        parts.append(f"{memory_size(needs.ram_mb, up=True)} RAM")
    shape = Shape(needs, "")
    optional = {
        "gpu": cards_needed(needs),
        "tier": needs.tiers,
        "compute_capability": needs.compute_capability,
        "cuda": needs.cuda,
        "driver": needs.driver,
        "region": needs.regions,
        "tags": needs.tags,
        "excluded_tags": needs.exclude_tags,
        "properties": needs.properties,
        "excluded_nodes": needs.exclude_nodes,
        "node": needs.node,
        "mesh_version": needs.mesh_version,
        "python": needs.pythons,
        "software": needs.software,
        "isolation": needs.isolation,
        "network": needs.network,
        "gang": needs.nodes > 1,
        "require": needs.require,
        "bandwidth": needs.down_mbps or needs.up_mbps,
        "image": needs.image_source,
    }
    return ", ".join([*parts, *(need(gate, shape) for gate, required in optional.items() if required)])


def _fail_cores(shape: Shape, busy: bool) -> str:
    milli = shape.requirements.cpu_milli
    least = f"{milli / 1_000:g} {'free ' if busy else ''}core"
    return f"have less than {least}" if milli <= 1_000 else f"have fewer than {least}s"


def _need_gpu(shape: Shape) -> str:
    needs, count = shape.requirements, cards_needed(shape.requirements)
    if not needs.vram_mb:
        return "a whole GPU" if count == 1 else f"{count} whole GPUs"
    vram = f"{memory_size(needs.vram_mb, up=True)} of VRAM"
    return vram if count == 1 else f"{count} GPUs with {vram} each"


def _have_gpu(_fleet: Fleet, node: NodeRecord, shape: Shape) -> str:
    if not node.cards:
        return "no GPU"
    free = node.free()
    if not shape.requirements.vram_mb:
        return f"{free.cards_idle} of {len(node.cards)} GPUs unused"
    return f"{' and '.join(memory_size(mb) for mb in free.vram_mb)} of VRAM free"


def _fail_gpu(shape: Shape, busy: bool) -> str:
    needs, count = shape.requirements, cards_needed(shape.requirements)
    free = "free " if busy else ""
    if not needs.vram_mb:
        return f"have no {free}GPU" if count == 1 else f"have fewer than {count} {free}GPUs"
    vram = memory_size(needs.vram_mb, up=True)
    if count == 1:
        return f"have less than {vram} of {free}VRAM"
    return f"have fewer than {count} GPUs with {vram} of {free}VRAM"


def _level(level: int | Level | None) -> str:
    return Level(level or 0).label


def per_hour(amount: int) -> str:
    return f"{format_credits(amount)}/h"


def describe_price(shape: Shape, offer: Offer | None) -> str:
    """Why only the price prevents a start, given the cheapest offer."""
    if offer is None:
        return "the owners of the nodes that fit want more than the spot price pays"
    return f"{describe_ceiling(shape)}, and the price is {per_hour(round_up(offer.price))} in {offer.zone}"


def describe_ceiling(shape: Shape) -> str:
    return f"it pays at most {per_hour(shape.ceiling)}" if shape.ceiling else "it pays nothing"


def _need_price(shape: Shape) -> str:
    if shape.ceiling is None:
        return "an owner who takes the spot price"
    return f"a price of at most {per_hour(shape.ceiling)}" if shape.ceiling else "a node of your own"


def _have_price(fleet: Fleet, node: NodeRecord, shape: Shape) -> str:
    market = fleet.prices.market
    if market is None:
        return "no price"
    offer, profile = market.offer(shape, node.profile), node.profile
    floor = market.floor_in(offer.zone.tier, node_tier=profile.capacity.tier, floor=node.floor or 0)
    net = market.table.net_of(offer.spot)
    if profile.owner == shape.account or floor <= net:
        return f"{per_hour(round_up(offer.price))} in {offer.zone}"
    unit = "GPU" if cards_needed(shape.requirements) else "core"
    return f"its owner wants {per_hour(floor)} for a {unit}, {offer.zone} pays {per_hour(net)} after the fee"


def _fail_price(shape: Shape, _busy: bool) -> str:
    if shape.ceiling is None:
        return "do not accept the spot price"
    return f"do not accept {per_hour(shape.ceiling)}"


def _rule(aspect: str) -> Callable[[Fleet, NodeRecord, Shape], str]:
    def have(fleet: Fleet, node: NodeRecord, shape: Shape) -> str:
        return ASPECTS[aspect].sentence(fleet.rules_of(node), Demand.of(shape.account, shape.requirements))

    return have


def _have_network(fleet: Fleet, node: NodeRecord, shape: Shape) -> str:
    return _rule("network")(fleet, node, shape) if node.profile.network else "no network for jobs"


def _labels(shape: Shape) -> str:
    labels = shape.requirements.labels
    return f"labelled {all_of(labels)}" if labels else "without a label"


def _rule_words(aspect: str, jobs: Callable[[Shape], str]) -> GateMessages:
    return GateMessages(lambda s: f"an owner who takes {jobs(s)}", _rule(aspect), lambda s, _: jobs(s))


RULE_WORDS: dict[str, GateMessages] = {
    "rule_submitter": _rule_words("submitter", lambda _: "this account's jobs"),
    "rule_label": _rule_words("label", lambda s: f"jobs {_labels(s)}"),
    "rule_gpu": _rule_words("gpu", lambda _: "jobs with a GPU"),
    "rule_minutes": _rule_words("minutes", lambda s: f"jobs of {s.requirements.minutes} minutes"),
    "rule_ram": _rule_words("ram", lambda s: f"jobs of {memory_size(s.requirements.ram_mb, up=True)} RAM"),
    "rule_disk": _rule_words("disk", lambda s: f"jobs of {memory_size(s.requirements.disk_mb, up=True)} disk"),
    "submitter_reputation": GateMessages(
        lambda _: "an owner who takes submitters of this account's score",
        lambda f, n, s: (
            f"its owner takes submitters from a score of {f.rules_of(n).score_min:.2f}, "
            f"this one has {f.submitter_score(s.account):.2f}"
        ),
        lambda *_: "submitters of this account's score",
    ),
}


def _have_features(_fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
    profile = node.profile
    found = [f"tag {tag}" for tag in sorted(profile.tags)] + [f"{key}={value}" for key, value in profile.properties]
    return ", ".join(found) or "no tags or properties"


def _speeds(down_mbps: int, up_mbps: int) -> str:
    speeds = [f"{mbps} Mb/s {way}" for mbps, way in ((down_mbps, "down"), (up_mbps, "up")) if mbps]
    return " and ".join(speeds)


def _need_bandwidth(shape: Shape) -> str:
    return f"a measured network speed of {_speeds(shape.requirements.down_mbps, shape.requirements.up_mbps)}"


def _have_exposure(fleet: Fleet, node: NodeRecord, _shape: Shape) -> str:
    owner = fleet.accounts.find(node.profile.owner)
    cap, held = (format_credits(int(column[owner])) for column in (fleet.owners.caps, fleet.owners.value))
    return f"its owner may hold jobs worth {cap} credits, and has {held}"


WORDS: dict[str, GateMessages] = {
    **RULE_WORDS,
    "network": GateMessages(lambda _: "network for jobs", _have_network, lambda *_: "do not take jobs with network"),
    "available": GateMessages(
        lambda _: "an available node", lambda _f, n, _s: rest_words([n]), lambda *_: "are not available"
    ),
    "cores": GateMessages(
        lambda s: cores(s.requirements.cpu_milli / 1_000),
        lambda _f, n, _s: f"{n.free().cpu_milli / 1_000:g} of {cores(n.profile.capacity.cpu_milli / 1_000)} free",
        _fail_cores,
    ),
    "ram": GateMessages(
        lambda s: f"{memory_size(s.requirements.ram_mb, up=True)} of RAM",
        lambda _f, n, _s: f"{memory_size(n.free().ram_mb)} of {memory_size(n.profile.capacity.ram_mb)} RAM free",
        _fail_ram,
    ),
    "disk": GateMessages(
        lambda s: f"{memory_size(s.requirements.disk_mb, up=True)} of disk",
        lambda _f, n, _s: f"{memory_size(n.free().disk_mb)} of {memory_size(n.profile.capacity.disk_mb)} disk free",
        lambda s, busy: (
            f"have less than {memory_size(s.requirements.disk_mb, up=True)} of {'free ' if busy else ''}disk"
        ),
    ),
    "gpu": GateMessages(_need_gpu, _have_gpu, _fail_gpu),
    "tier": GateMessages(
        lambda s: f"tier {any_of(s.requirements.tiers)}",
        lambda _f, n, _s: f"tier {any_of({card.tier for card in n.cards} or {'cpu'})}",
        lambda s, _: f"are not of tier {any_of(s.requirements.tiers)}",
    ),
    **{gate: GateMessages(*words) for gate, words in SOFTWARE_WORDS.items()},
    "region": GateMessages(
        lambda s: f"region {any_of(s.requirements.regions)}",
        lambda _f, n, _s: f"region {n.profile.region or 'unknown'}",
        lambda s, _: f"are not in region {any_of(s.requirements.regions)}",
    ),
    "tags": GateMessages(
        lambda s: f"tags {all_of(s.requirements.tags)}",
        lambda _f, n, s: f"no tag {all_of(s.requirements.tags - n.profile.tags)}",
        lambda s, _: f"lack tag {any_of(s.requirements.tags)}",
    ),
    "excluded_tags": GateMessages(
        lambda s: f"no tag {any_of(s.requirements.exclude_tags)}",
        lambda _f, n, s: f"tag {all_of(s.requirements.exclude_tags & n.profile.tags)}",
        lambda s, _: f"have the excluded tag {any_of(s.requirements.exclude_tags)}",
    ),
    "properties": GateMessages(
        lambda s: f"property {pairs(s.requirements.properties)}",
        lambda _f, n, _s: f"property {pairs(n.profile.properties)}" if n.profile.properties else "no property",
        lambda s, _: f"lack property {pairs(s.requirements.properties)}",
    ),
    "require": GateMessages(
        lambda s: s.requirements.require, _have_features, lambda s, _: f"do not meet {s.requirements.require}"
    ),
    "bandwidth": GateMessages(
        _need_bandwidth,
        lambda _f, n, _s: f"{_speeds(n.profile.down_mbps, n.profile.up_mbps) or 'no'} measured network speed",
        lambda s, _: f"do not have {_need_bandwidth(s)}",
    ),
    "excluded_nodes": GateMessages(
        lambda s: f"any node except {any_of(s.requirements.exclude_nodes)}",
        lambda _f, n, _s: f"is {n.profile.name}",
        lambda *_: "are excluded by name",
    ),
    "node": GateMessages(
        lambda s: f"node {s.requirements.node}",
        lambda _f, n, _s: f"is {n.profile.name}",
        lambda s, _: f"are not {s.requirements.node}",
    ),
    "mesh_version": GateMessages(
        lambda s: f"mesh version {s.requirements.mesh_version}",
        lambda _f, n, _s: f"mesh version {n.profile.mesh_version or 'unknown'}",
        lambda s, _: f"do not run mesh version {s.requirements.mesh_version}",
    ),
    "python": GateMessages(
        lambda s: f"Python {any_version(s.requirements.pythons)}",
        lambda _f, n, _s: f"Python {', '.join(newest_last(n.profile.pythons())) or 'unknown'}",
        lambda s, _: f"do not have Python {any_version(s.requirements.pythons)}",
    ),
    "isolation": GateMessages(
        lambda s: f"isolation {_level(s.requirements.isolation)}",
        lambda _f, n, _s: f"isolation {_level(n.profile.level)}",
        lambda s, _: f"have weaker isolation than {_level(s.requirements.isolation)}",
    ),
    "trust": GateMessages(
        lambda _: "a sandbox, or an owner who trusts this account",
        lambda *_: "no sandbox for other accounts' jobs",
        lambda *_: "have no sandbox for other accounts' jobs",
    ),
    "secrets": GateMessages(
        lambda s: (
            "a node of your own"
            + (", or of an owner you named," if s.requirements.secret_owners else "")
            + " for its secrets"
        ),
        lambda *_: "a node of another account, which may not see its secrets",
        lambda *_: "belong to accounts that may not see its secrets",
    ),
    "gpu_lent": GateMessages(
        lambda _: "a GPU that its owner lends to other accounts",
        lambda *_: "a GPU for its owner and trusted accounts only",
        lambda *_: "lend their GPU to their owner and trusted accounts only",
    ),
    "integrity": GateMessages(
        lambda _: "a node that is not banned for wrong results",
        lambda *_: "banned: several of its results were proven wrong",
        lambda *_: "are banned: several of their results were proven wrong",
    ),
    "other_owner": GateMessages(
        lambda _: "an owner who has not run this job yet, to confirm its result",
        lambda *_: "its owner has already run this job",
        lambda *_: "belong to owners who have already run it",
    ),
    "newcomer": GateMessages(
        lambda _: "an established node, or a new one that is not already running another account's job",
        lambda *_: "new, and its owner's new nodes already run another account's job",
        lambda *_: "are too new to run more than one job of other accounts at a time",
    ),
    "price": GateMessages(_need_price, _have_price, _fail_price),
    "exposure": GateMessages(
        lambda s: f"an owner who may hold jobs worth {format_credits(round_up(s.value))} credits more",
        _have_exposure,
        lambda s, _: f"belong to owners who may not hold jobs worth {format_credits(round_up(s.value))} more yet",
    ),
    "gang": GateMessages(
        lambda s: f"a sandbox that can join the network of {s.requirements.nodes} nodes",
        lambda _f, n, _s: f"its sandbox ({n.profile.level.label}) cannot",
        lambda *_: "cannot join a network between nodes, which takes isolation namespace and /dev/net/tun",
    ),
    "withheld": GateMessages(
        lambda _: "a node that is not kept for a job on several nodes",
        lambda *_: "kept for a job on several nodes, which has waited for long",
        lambda *_: "are kept for a job on several nodes, which has waited for long",
    ),
    "avoid": GateMessages(
        lambda _: "a different node from the one that failed it",
        lambda *_: "failed this job last time",
        lambda *_: "failed this job last time",
    ),
}
