"""The allocator's rules a second time, in the plainest Python, and random fleets and shapes to hold the two together.

Slow and obvious on purpose. Nothing here may be shared with the code under test but the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from random import Random

from hypothesis import strategies as st

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import Reservation
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import Economy, PriceTable, Zone, first_table
from computepool.core.placement.rules import Rules
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape
from computepool.core.trust.tiers import TIER_SPEED
from tests.core.rule_oracle import LABELS, MINUTES, REQUIRES, RULES, SCORES, mostly_empty, rule_gates, subsets

ACCOUNTS = ("ann", "bob", "eve")
TAGS = ("linux", "gpu", "lab")
PROPERTIES = (("os", "debian"), ("os", "macos"), ("net", "fast"))
TIERS = ("rtx-4090", "rtx-3060", "h100")
#: Below, at and above what the first price table asks, and none. Equal to a price now and then, on purpose.
FLOORS = (None, None, None, 0, 1, 5_600_000, 8_000_001, 24_000_000, AMOUNT_MAX)
CEILINGS = (None, None, None, 0, 1, 3_500_000, 7_000_000, 20_000_000, 21_000_000, 60_000_000, AMOUNT_MAX)
REGIONS = {"in": "in", "india": "in", "DE": "eu", "fr": "eu", "eu": "eu", "us": "us", "": ""}


@dataclass
class PlainPrices:
    """A market as the oracle keeps it."""

    table: PriceTable
    spots: dict[tuple[str, str], int]

    def spot(self, tier: str, region: str) -> int:
        table = self.table
        rates = table.tiers.get(tier, table.tiers["gpu"]) * table.regions.get(region, 100)
        reference = table.base * rates // 10_000
        wanted = self.spots.get((tier, region), reference)
        return min(AMOUNT_MAX, max(reference // table.spot_range, min(reference * table.spot_range, wanted)))

    def accepts(self, node: PlainNode, shape: Shape) -> bool:
        """Floor and ceiling meet at the spot price. In fractions, so that nothing is rounded by accident."""
        profile, wanted = node.profile, shape.requirements
        if profile.owner == shape.account:
            return True
        cards = wanted.gpus if wanted.gpus else (1 if wanted.vram_mb else 0)
        best = max(profile.capacity.gpus, key=lambda gpu: gpu.vram_mb, default=None)
        own_tier = best.tier if best else "cpu"
        floor = Fraction(node.floor or 0)
        if not cards:
            rates = self.table.tiers
            floor *= Fraction(rates["cpu"], rates.get(own_tier, rates["gpu"]))
        spot = self.spot(own_tier if cards else "cpu", REGIONS[profile.region])
        if floor > spot * (1_000_000 - self.table.fee_ppm) // 1_000_000:
            return False
        return shape.ceiling is None or self.price(spot, wanted, best) <= shape.ceiling

    @staticmethod
    def price(spot: int, wanted: Requirements, best: Gpu | None) -> int:
        if not wanted.gpus and not wanted.vram_mb:
            thousandths = wanted.cpu_milli
        elif not wanted.vram_mb or best is None:
            thousandths = 1_000 * max(1, wanted.gpus)
        else:
            share = min(1_000, ceil(Fraction(1_000 * wanted.vram_mb, best.vram_mb)))
            thousandths = max(1, wanted.gpus) * share
        return min(AMOUNT_MAX, spot * thousandths // 1_000)


@dataclass
class PlainNode:
    """A node as the oracle keeps it: what it said of itself, and what was handed out."""

    profile: NodeProfile
    available: bool = True
    held: list[Reservation] = field(default_factory=list)
    floor: int | None = None
    newcomer: bool = False  #: one job of others at a time
    banned: bool = False  #: no job of others
    kin: dict[str, PlainNode] = field(default_factory=dict)  #: all nodes, this one among them
    rules: Rules = field(default_factory=Rules)
    scores: dict[str, float] = field(default_factory=dict)  #: of submitters, by account
    prices: PlainPrices | None = None  #: None: there is no market

    def used(self, what: str) -> int:
        return sum(getattr(reservation, what) for reservation in self.held)

    def card_users(self, index: int) -> list[tuple[int, bool]]:
        """(MB, is it the job's alone) of each job on the card."""
        return [(held.vram_mb, not held.vram_mb) for held in self.held if index in held.cards]

    def card_free_mb(self, index: int) -> int:
        users = self.card_users(index)
        if any(whole for _, whole in users):
            return 0
        return self.profile.capacity.gpus[index].vram_mb - sum(mb for mb, _ in users)

    def fitting_cards(self, wanted: Requirements, *, idle: bool, tiers: Iterable[str]) -> list[int]:
        found = []
        for index, gpu in enumerate(self.profile.capacity.gpus):
            if tiers and gpu.tier not in tiers:
                continue
            if wanted.vram_mb:
                fits = (gpu.vram_mb if idle else self.card_free_mb(index)) >= wanted.vram_mb
            else:
                fits = idle or not self.card_users(index)
            if fits:
                found.append(index)
        return found


def ram_held(total: Capacity, wanted: Requirements) -> int:
    share = int(Fraction(min(wanted.cpu_milli, total.cpu_milli), total.cpu_milli) * total.ram_mb)
    return max(wanted.ram_mb, share) if wanted.ram_by_cores else wanted.ram_mb


def gates(node: PlainNode, shape: Shape, *, idle: bool) -> dict[str, bool]:
    """Gate by gate, whether the node passes: now, or with `idle` as if it were online and had nothing to do."""
    wanted, profile, total = shape.requirements, node.profile, node.profile.capacity
    free = {
        "cores": total.cpu_milli - (0 if idle else node.used("cpu_milli")),
        "ram": total.ram_mb - (0 if idle else node.used("ram_mb")),
        "disk": total.disk_mb - (0 if idle else node.used("disk_mb")),
    }
    cards = wanted.gpus if wanted.gpus else (1 if wanted.vram_mb else 0)
    own_tiers = {gpu.tier for gpu in total.gpus} or {"cpu"}
    # Where all cards are alike, the tier is the tier gate's business alone.
    card_tiers = wanted.tiers if len(own_tiers) > 1 else ()
    friend = profile.owner == shape.account or shape.account in profile.trusted or "*" in profile.trusted
    return {
        "available": idle or node.available,
        "cores": free["cores"] >= wanted.cpu_milli,
        "ram": free["ram"] >= (wanted.ram_mb if idle else ram_held(total, wanted))
        or (wanted.ram_by_cores and not idle and free["cores"] < wanted.cpu_milli),
        "disk": free["disk"] >= wanted.disk_mb,
        "gpu": len(node.fitting_cards(wanted, idle=idle, tiers=card_tiers)) >= cards,
        "tier": not wanted.tiers or bool(own_tiers & wanted.tiers),
        "region": not wanted.regions or REGIONS[profile.region] in {REGIONS[r] for r in wanted.regions},
        "tags": all(tag in profile.tags for tag in wanted.tags),
        "excluded_tags": not any(tag in profile.tags for tag in wanted.exclude_tags),
        "properties": all(item in profile.properties for item in wanted.properties),
        "require": not wanted.require or REQUIRES[wanted.require](profile.tags, dict.fromkeys(profile.properties)),
        "bandwidth": profile.down_mbps >= wanted.down_mbps and profile.up_mbps >= wanted.up_mbps,
        "excluded_nodes": not {profile.node_id, profile.name, profile.url} & wanted.exclude_nodes,
        "node": wanted.node in ("", profile.node_id),
        "mesh_version": not wanted.mesh_version or wanted.mesh_version == profile.mesh_version,
        "python": not wanted.pythons
        or any(
            allowed.split(".")[:2] == python.split(".")[:2]
            for allowed in wanted.pythons
            for python in (profile.python, *profile.fetches_python)
        ),
        "isolation": wanted.isolation is None or profile.level >= wanted.isolation,
        "trust": profile.level >= Level.NAMESPACE or friend,
        "gpu_lent": not cards or profile.lends_gpus or friend,
        **rule_gates(profile, node.rules, shape, scores=node.scores, idle=idle),
        "integrity": not node.banned or profile.owner == shape.account,
        "newcomer": (
            idle
            or not node.newcomer
            or profile.owner == shape.account
            or not any(
                held.external
                for other in node.kin.values()
                if other.newcomer and other.profile.owner == profile.owner
                for held in other.held
            )
        ),
        "price": idle or node.prices is None or node.prices.accepts(node, shape),
    }


def could_ever_run(nodes: Iterable[PlainNode], shape: Shape) -> set[str]:
    return {node.profile.node_id for node in nodes if all(gates(node, shape, idle=True).values())}


def may_start(nodes: Iterable[PlainNode], shape: Shape) -> set[str]:
    """The ids of the nodes that may run the shape now."""
    nodes = list(nodes)
    passing = {node.profile.node_id for node in nodes if all(gates(node, shape, idle=False).values())}
    if could_ever_run(nodes, shape) != {shape.avoid_node}:
        passing.discard(shape.avoid_node)
    return passing


def check_reservation(node: PlainNode, wanted: Requirements, reservation: Reservation) -> None:
    """The reservation gives the job what it asked for. The node as it was before."""
    assert reservation.cpu_milli == wanted.cpu_milli
    assert reservation.ram_mb == ram_held(node.profile.capacity, wanted)
    assert reservation.disk_mb == wanted.disk_mb
    cards = reservation.cards
    assert len(set(cards)) == len(cards) == (wanted.gpus or int(wanted.vram_mb > 0))
    assert set(cards) <= set(node.fitting_cards(wanted, idle=False, tiers=wanted.tiers))
    assert reservation.vram_mb == wanted.vram_mb


def check_not_overcommitted(node: PlainNode) -> None:
    total = node.profile.capacity
    assert node.used("cpu_milli") <= total.cpu_milli
    assert node.used("ram_mb") <= total.ram_mb
    assert node.used("disk_mb") <= total.disk_mb
    for index, gpu in enumerate(total.gpus):
        users = node.card_users(index)
        assert sum(mb for mb, _ in users) <= gpu.vram_mb
        assert len(users) <= 1 or not any(whole for _, whole in users)


gpus = st.builds(
    lambda tier, vram_mb: Gpu(name=tier, tier=tier, vram_mb=vram_mb),
    st.sampled_from(TIERS),
    st.sampled_from([8_000, 16_000, 24_000]),
)
capacities = st.builds(
    Capacity,
    cpu_milli=st.sampled_from([500, 1_000, 2_000, 4_000]),
    ram_mb=st.sampled_from([256, 1_000, 4_000]),
    disk_mb=st.sampled_from([256, 1_000, 9_000]),
    gpus=st.lists(gpus, max_size=3).map(tuple),
)


def profiles() -> st.SearchStrategy[NodeProfile]:
    return st.builds(
        NodeProfile,
        node_id=st.sampled_from([f"n{number}" for number in range(8)]),
        name=st.sampled_from(["alpha", "beta", "gamma"]),
        owner=st.sampled_from(ACCOUNTS),
        capacity=capacities,
        region=st.sampled_from(list(REGIONS)),
        tags=subsets(TAGS),
        properties=subsets(PROPERTIES).map(tuple),
        mesh_version=st.sampled_from(["", "1", "2"]),
        python=st.sampled_from(["", "3.11", "3.11.7", "3.12"]),
        fetches_python=subsets(["3.11", "3.12", "3.13"]),
        level=st.sampled_from([*Level, Level.NAMESPACE, Level.CONTAINER]),
        trusted=mostly_empty([*ACCOUNTS, "*"]),
        url=st.sampled_from(["", "http://one", "http://two"]),
        network=st.booleans(),
        down_mbps=st.sampled_from([0, 20, 100]),
        up_mbps=st.sampled_from([0, 10]),
        lends_gpus=st.booleans(),
    )


#: What a job may ask for, one thing at a time.
DEMANDS: dict[str, st.SearchStrategy[object]] = {
    "cpu_milli": st.sampled_from([0, 500, 2_000, 8_000]),
    "ram_mb": st.sampled_from([0, 256, 1_000, 4_000]),
    "ram_by_cores": st.just(True),
    "disk_mb": st.sampled_from([0, 256, 1_000]),
    "gpus": st.sampled_from([1, 2]),
    "vram_mb": st.sampled_from([6_000, 16_000]),
    "tiers": subsets([*TIERS, "cpu"]),
    "regions": subsets([*REGIONS.keys() - {""}]),
    "tags": subsets(TAGS),
    "prefer_tags": subsets(TAGS),
    "exclude_tags": subsets(TAGS),
    "properties": subsets(PROPERTIES),
    "require": st.sampled_from(sorted(REQUIRES)),
    "down_mbps": st.sampled_from([20, 50]),
    "up_mbps": st.sampled_from([5, 20]),
    "prefer": st.sampled_from(["cheapest", "fastest"]),
    "exclude_nodes": subsets(["n0", "n1", "alpha", "http://one"]),
    "node": st.sampled_from(["n2", "beta"]),
    "mesh_version": st.just("1"),
    "pythons": subsets(["3.11", "3.13.1", "3.99", "2.7"]),
    "isolation": st.sampled_from(list(Level)),
    "network": st.just(True),
    "labels": subsets(LABELS),
    "minutes": st.sampled_from(MINUTES),
}


@st.composite
def demanding(draw: st.DrawFn) -> Requirements:
    """A few demands at a time: a job that asks for everything at once fits nowhere, and tests nothing."""
    fields = draw(st.lists(st.sampled_from(sorted(DEMANDS)), max_size=4, unique=True))
    basis = {"cpu_milli": 500, "ram_mb": 0, "disk_mb": 0}
    return Requirements(**basis | {name: draw(DEMANDS[name]) for name in fields})  # type: ignore[arg-type]


requirements = demanding()
#: Small jobs, to put load on nodes.
light_requirements = st.builds(
    Requirements,
    cpu_milli=st.sampled_from([500, 1_000]),
    ram_mb=st.sampled_from([0, 256]),
    ram_by_cores=st.booleans(),
    disk_mb=st.just(0),
    gpus=st.sampled_from([0, 0, 1]),
    vram_mb=st.sampled_from([0, 0, 6_000]),
)
shapes = st.builds(
    Shape,
    requirements,
    account=st.sampled_from(ACCOUNTS),
    avoid_node=st.sampled_from(["", "", "n0", "n3"]),
    ceiling=st.sampled_from(CEILINGS),
)
tables = st.sampled_from(
    [
        PriceTable(),
        PriceTable(tiers=dict(TIER_SPEED) | {"cpu": 7, "h100": 333}, fee_ppm=123_457, spot_range=2),
        PriceTable(base=10**12, tiers=dict(TIER_SPEED) | {"h100": 100_000}, spot_range=100),
        first_table(Economy.TIME_BANK),
        first_table(Economy.NONE),
    ]
)
markets = st.builds(
    PlainPrices,
    tables,
    st.dictionaries(
        st.tuples(st.sampled_from([*TIERS, "cpu"]), st.sampled_from(["in", "eu", "us", ""])), st.integers(0, 60_000_000)
    ),
)


@dataclass
class Pair:
    """A fleet and the oracle's copy of it."""

    fleet: Fleet
    nodes: dict[str, PlainNode]

    def follow(self, prices: PlainPrices) -> None:
        market = Market(prices.table)
        market.spots = {Zone(*zone): price for zone, price in prices.spots.items()}
        self.fleet.set_prices(market)
        for node in self.nodes.values():
            node.prices = prices

    def set_newcomer(self, node_id: str, owes: bool) -> None:
        self.nodes[node_id].newcomer = owes
        self.nodes[node_id].kin = self.nodes
        self.fleet.set_newcomer(node_id, owes)

    def set_banned(self, node_id: str, banned: bool) -> None:
        self.nodes[node_id].banned = banned
        self.fleet.set_integrity(node_id, streak=0, banned=banned)

    def set_rules(self, node_id: str, rules: Rules) -> None:
        self.nodes[node_id].rules = rules
        self.fleet.set_rules(node_id, rules)

    def set_scores(self, scores: dict[str, float]) -> None:
        for account, score in scores.items():
            self.fleet.set_submitter(account, score)
        for node in self.nodes.values():
            node.scores = scores

    def set_floor(self, node_id: str, floor: int | None) -> None:
        self.nodes[node_id].floor = floor
        self.fleet.set_floor(node_id, floor)

    def eligible_ids(self, mask: Iterable[bool]) -> set[str]:
        return {self.fleet.node_at(row).profile.node_id for row, passed in enumerate(mask) if passed}


@st.composite
def loaded_fleets(draw: st.DrawFn) -> Pair:
    """Nodes of every kind, some busy, some unavailable, some gone and their rows used again."""
    pair = Pair(Fleet(), {})
    for profile in draw(st.lists(profiles(), min_size=1, max_size=8)):
        if profile.node_id in pair.nodes and draw(st.booleans()):
            pair.fleet.remove(profile.node_id)
            del pair.nodes[profile.node_id]
        elif profile.node_id not in pair.nodes:
            pair.fleet.upsert(profile)
            pair.nodes[profile.node_id] = PlainNode(profile)
    for node_id, node in pair.nodes.items():
        for wanted in draw(st.lists(light_requirements, max_size=3)):
            if reservation := pair.fleet.reserve(node_id, wanted):
                node.held.append(reservation)
        node.available = draw(st.sampled_from([True, True, True, True, False]))
        pair.fleet.set_available(node_id, node.available)
        pair.fleet.set_reliability(node_id, draw(st.sampled_from([0.0, 0.5, 0.8, 1.0])))
        pair.set_floor(node_id, draw(st.sampled_from(FLOORS)))
        pair.set_newcomer(node_id, draw(st.sampled_from([False, False, True])))
        pair.set_banned(node_id, draw(st.sampled_from([False, False, False, True])))
        pair.set_rules(node_id, draw(st.sampled_from(RULES)))
    pair.set_scores(draw(st.dictionaries(st.sampled_from(ACCOUNTS), st.sampled_from(SCORES))))
    if draw(st.booleans()):
        pair.follow(draw(markets))
    return pair


class Dice:
    """The same kinds of fleets and shapes from a seed: not shrunk, but a hundred times as many in the same time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def some(self, values: Iterable[object]) -> frozenset[object]:
        pool = sorted(values, key=str)
        return frozenset(self._random.sample(pool, self._random.randint(0, 2)))

    def one(self, *values: object) -> object:
        return self._random.choice(values)

    def profile(self, number: int) -> NodeProfile:
        cards = tuple(
            Gpu(name=str(tier), tier=str(tier), vram_mb=self._random.choice([8_000, 16_000, 24_000]))
            for tier in self._random.choices(TIERS, k=self._random.randint(0, 3))
        )
        capacity = Capacity(
            cpu_milli=self._random.choice([1_000, 2_000, 4_000]),
            ram_mb=self._random.choice([256, 1_000, 4_000]),
            disk_mb=self._random.choice([256, 1_000, 9_000]),
            gpus=cards,
        )
        fields: dict[str, object] = {
            "name": self.one("alpha", "beta", "gamma"),
            "owner": self.one(*ACCOUNTS),
            "region": self.one(*REGIONS),
            "tags": self.some(TAGS),
            "properties": tuple(self.some(PROPERTIES)),
            "mesh_version": self.one("", "1", "2"),
            "python": self.one("", "3.11", "3.11.7", "3.12"),
            "fetches_python": self.some(["3.11", "3.12", "3.13"]),
            "level": self.one(*Level, Level.NAMESPACE, Level.CONTAINER),
            "trusted": self.some([*ACCOUNTS, "*"]) if self._random.random() < 0.3 else frozenset(),
            "url": self.one("", "http://one", "http://two"),
            "network": self.one(False, True),
            "lends_gpus": self.one(False, True),
        }
        return NodeProfile(node_id=f"n{number}", capacity=capacity, **fields)  # type: ignore[arg-type]

    def requirements(self) -> Requirements:
        demands: dict[str, object] = {
            "cpu_milli": self.one(0, 500, 2_000, 4_000),
            "ram_mb": self.one(0, 256, 1_000, 4_000),
            "ram_by_cores": self.one(True),
            "disk_mb": self.one(0, 256, 1_000),
            "gpus": self.one(1, 2),
            "vram_mb": self.one(6_000, 16_000),
            "tiers": self.some([*TIERS, "cpu"]),
            "regions": self.some(REGIONS.keys() - {""}),
            "tags": self.some(TAGS),
            "exclude_tags": self.some(TAGS),
            "properties": self.some(PROPERTIES),
            "exclude_nodes": self.some(["n0", "n1", "alpha", "http://one"]),
            "node": self.one("n2", "beta"),
            "mesh_version": "1",
            "pythons": self.some(["3.11", "3.13.1", "3.99"]),
            "isolation": self.one(*Level),
            "network": True,
            "labels": self.some(LABELS),
            "minutes": self.one(*MINUTES),
        }
        chosen = self._random.sample(sorted(demands), self._random.randint(0, 4))
        basis = {"cpu_milli": 500, "ram_mb": 0, "disk_mb": 0}
        return Requirements(**basis | {name: demands[name] for name in chosen})  # type: ignore[arg-type]

    def shape(self) -> Shape:
        ceiling = self._random.choice(CEILINGS)
        return Shape(self.requirements(), str(self.one(*ACCOUNTS)), str(self.one("", "n0", "n1")), ceiling)

    def prices(self) -> PlainPrices:
        zones = [(str(tier), region) for tier in (*TIERS, "cpu") for region in ("in", "eu", "us", "")]
        chosen = self._random.sample(zones, 8)
        table = PriceTable(fee_ppm=self._random.choice([0, 200_000, 333_333]))
        return PlainPrices(table, {zone: self._random.randint(0, 60_000_000) for zone in chosen})

    def fleet(self) -> Pair:
        pair = Pair(Fleet(), {})
        for number in range(self._random.randint(1, 8)):
            pair.nodes[f"n{number}"] = PlainNode(self.profile(number))
            pair.fleet.upsert(pair.nodes[f"n{number}"].profile)
        for node_id, node in pair.nodes.items():
            for _ in range(self._random.randint(0, 3)):
                if reservation := pair.fleet.reserve(node_id, self.requirements()):
                    node.held.append(reservation)
            if self._random.random() < 0.2:
                # It comes back as another machine, perhaps too small for its jobs.
                node.profile = self.profile(int(node_id[1:]))
                pair.fleet.upsert(node.profile)
            node.available = self._random.random() < 0.85
            pair.fleet.set_available(node_id, node.available)
            pair.set_floor(node_id, self._random.choice(FLOORS))
            pair.set_newcomer(node_id, self._random.random() < 0.2)
            pair.set_banned(node_id, self._random.random() < 0.1)
            pair.set_rules(node_id, self._random.choice(RULES))
        pair.set_scores({account: self._random.choice(SCORES) for account in ACCOUNTS[:2]})
        if self._random.random() < 0.7:
            pair.follow(self.prices())
        return pair
