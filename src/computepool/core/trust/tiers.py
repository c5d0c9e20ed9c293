"""The tier of a graphics card, the speed of a tier, and the price region of a place.

Tables and two look-ups. A tier is a routing key, not a benchmark: it is what people ask for (`--tier
rtx-4090`) and what prices are quoted by. Shared by the node's probe and the hub, so nothing heavy may be
imported here.
"""

from __future__ import annotations

import re

from computepool.core.resources import CPU_TIER, UNKNOWN_GPU_TIER

#: Card names, lower-cased and with every run of other characters as one space, are held against these in
#: order; the first that matches names the tier (`\1` is what the pattern captured). A longer name stands
#: before the shorter one that it contains (`gtx-1080ti` before `gtx-1080`). Ti and Super cards share the tier
#: of their plain sister unless they have a row of their own.
GPU_PATTERNS: tuple[tuple[str, str], ...] = (
    # Data centre
    (r"\bg?b([23]00)\b", r"b\1"),
    (r"\bgh200\b", "gh200"),
    (r"\bh(100|200|800)\b", r"h\1"),
    (r"\bh20\b", "h20"),
    (r"\ba(100|800)\b", r"a\1"),
    (r"\ba(16|30|40)\b", r"a\1"),
    (r"\ba10g?\b", "a10"),
    (r"\bl40s\b", "l40s"),
    (r"\bl40\b", "l40"),
    (r"\bl4\b", "l4"),
    (r"\bt4\b", "t4"),
    (r"\bv100s?\b", "v100"),
    (r"\bp(100|40|4)\b", r"p\1"),
    (r"\bk80\b", "k80"),
    (r"\bmi ?(\d{2,3})([ax]?)\b", r"mi\1\2"),
    # Workstation
    (r"\brtx pro (\d{4})\b", r"rtx-pro-\1"),
    (r"\brtx (\d{4}) ada\b", r"rtx-\1-ada"),
    (r"\brtx a(\d{4})\b", r"rtx-a\1"),
    (r"\bquadro rtx (\d{4})\b", r"quadro-rtx-\1"),
    # Desktop and laptop
    (r"\bgtx ?1080 ?ti\b", "gtx-1080ti"),
    (r"\brtx ?(50[5-9]0|40[5-9]0|30[5-9]0|20[5-8]0)", r"rtx-\1"),
    (r"\bgtx ?(10[5-8]0|16[3-6]0)", r"gtx-\1"),
    (r"\btitan ?(rtx|v|xp|x)\b", r"titan-\1"),
    # Other makers: the name is kept, so that people can ask for it
    (r"\brx ?(\d{4}) ?(xtx|xt|gre)?\b", r"rx-\1\2"),
    (r"\barc (?:tm )?([ab]\d{3})m?\b", r"arc-\1"),
    (r"\bapple (m\d+) (pro|max|ultra)\b", r"apple-\1-\2"),
    (r"\bapple (m\d+)\b", r"apple-\1"),
    # Cards that the tables below do not know: the name says the family, and what is measured the rest (core/trust/hardware.py)
    (r"\brtx ?(\d{4})", r"rtx-\1"),
    (r"\bgtx ?(\d{3})\b", r"gtx-\1"),
    (r"\bnvidia g?([bh]\d{3})\b", r"\1"),
)

#: Speed relative to an unknown GPU, times 100 (whole numbers: prices are multiplied by these). The consumer
#: rows and `cpu` are the project's price table; the others are placed between them by published throughput.
TIER_SPEED: dict[str, int] = {
    CPU_TIER: 80,
    "cpu-slow": 40,
    "cpu-tiny": 15,
    UNKNOWN_GPU_TIER: 100,
    "gtx-1050": 100,
    "gtx-1060": 110,
    "gtx-1650": 110,
    "gtx-1660": 130,
    "gtx-1070": 140,
    "gtx-1080": 150,
    "gtx-1080ti": 150,
    "rtx-2060": 170,
    "rtx-2070": 200,
    "rtx-2080": 200,
    "rtx-3050": 150,
    "rtx-3060": 200,
    "rtx-3070": 200,
    "rtx-3080": 200,
    "rtx-3090": 250,
    "rtx-4050": 170,
    "rtx-4060": 200,
    "rtx-4070": 250,
    "rtx-4080": 280,
    "rtx-4090": 300,
    "rtx-5050": 180,
    "rtx-5060": 220,
    "rtx-5070": 260,
    "rtx-5080": 290,
    "rtx-5090": 300,
    "rx-6800xt": 180,
    "rx-6900xt": 190,
    "rx-7800xt": 200,
    "rx-7900xt": 220,
    "rx-7900xtx": 240,
    "rx-9070xt": 240,
    "rtx-a4000": 180,
    "rtx-a5000": 230,
    "rtx-a6000": 260,
    "rtx-6000-ada": 330,
    "rtx-pro-6000": 400,
    "k80": 80,
    "p4": 100,
    "p40": 140,
    "p100": 150,
    "t4": 150,
    "a16": 120,
    "a10": 220,
    "a30": 250,
    "a40": 260,
    "l4": 200,
    "l40": 330,
    "l40s": 350,
    "v100": 230,
    "a800": 400,
    "a100": 400,
    "mi210": 300,
    "mi250": 380,
    "mi250x": 400,
    "mi300a": 600,
    "mi300x": 650,
    "mi325x": 680,
    "h20": 400,
    "h800": 600,
    "h100": 600,
    "gh200": 640,
    "h200": 680,
    "b200": 1000,
    "b300": 1100,
}

#: What cards of a tier reach in a product of two half-precision matrices of 4096², accumulated in single precision:
#: billions of operations a second. Careful estimates from the cards' specifications: of all of them the H200 alone was
#: measured (829 TFLOPS). Only of makers whose cards the agent can measure (agent/hardware/measure.py).
TIER_GFLOPS: dict[str, int] = {
    "gtx-1050": 1_800, "gtx-1060": 4_000, "gtx-1650": 3_000, "gtx-1660": 5_000, "gtx-1070": 6_000, "gtx-1080": 8_000,
    "gtx-1080ti": 11_000, "rtx-2060": 24_000, "rtx-2070": 28_000, "rtx-2080": 38_000, "rtx-3050": 16_000,
    "rtx-3060": 24_000, "rtx-3070": 38_000, "rtx-3080": 58_000, "rtx-3090": 68_000, "rtx-4050": 22_000,
    "rtx-4060": 28_000, "rtx-4070": 56_000, "rtx-4080": 95_000, "rtx-4090": 155_000, "rtx-5050": 24_000,
    "rtx-5060": 36_000, "rtx-5070": 60_000, "rtx-5080": 110_000, "rtx-5090": 200_000, "rtx-a4000": 70_000,
    "rtx-a5000": 100_000, "rtx-a6000": 140_000, "rtx-6000-ada": 280_000, "rtx-pro-6000": 380_000, "p4": 4_500,
    "p40": 10_000, "p100": 16_000, "t4": 40_000, "a16": 15_000, "a10": 90_000, "a30": 135_000, "a40": 120_000,
    "l4": 75_000, "l40": 160_000, "l40s": 280_000, "v100": 90_000, "a800": 240_000, "a100": 240_000, "h20": 130_000,
    "h800": 600_000, "h100": 600_000, "gh200": 650_000, "h200": 720_000, "b200": 1_500_000, "b300": 1_600_000,
}  # fmt: skip

#: What a core is measured against, and its score there (agent/hardware/measure.py).
REFERENCE = "a virtual core of an AMD EPYC server with CPython 3.11"
REFERENCE_SCORE = 1000

_EU_MEMBERS = (
    "at be bg cy cz de dk ee es fi fr gr hr hu ie it lt lu lv mt nl pl pt ro se si sk "
    "austria belgium bulgaria croatia cyprus czechia denmark estonia finland france germany greece hungary "
    "ireland italy latvia lithuania luxembourg malta netherlands poland portugal romania slovakia slovenia "
    "spain sweden"
)
_REGION_ALIASES: dict[str, str] = {
    "india": "in",
    "gb": "uk",
    "great britain": "uk",
    "united kingdom": "uk",
    "england": "uk",
    "usa": "us",
    "united states": "us",
    "europe": "eu",
    "european union": "eu",
    "el": "eu",  # what the EU itself calls Greece
    **dict.fromkeys(_EU_MEMBERS.split(), "eu"),
}

#: Tiers by what kind of machine one finds them in: few enough to be told apart on a map. Apple's chips are no cards.
_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"cpu(-.*)?", "processor"),
    (r"[ghb]+\d{2,3}|[alptvk]\d{1,3}s?|mi\d+[ax]?", "data centre card"),
    (r"rtx-pro-.*|rtx-\d+-ada|rtx-a\d+|quadro-.*", "workstation card"),
    (r"(rtx|gtx|titan|rx|arc)-.*", "desktop card"),
)
OTHER_FAMILY = "other card"

_COMPILED = tuple((re.compile(pattern), tier) for pattern, tier in GPU_PATTERNS)
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def tier_of(gpu_name: str) -> str:
    """The tier of a card by its name: `cpu` for no card, `gpu` for one the table does not know."""
    words = _SEPARATORS.sub(" ", gpu_name.lower()).strip()
    if not words:
        return CPU_TIER
    for pattern, tier in _COMPILED:
        if match := pattern.search(words):
            return match.expand(tier)
    return UNKNOWN_GPU_TIER


def speed_of(tier: str) -> int:
    """The tier's speed times 100; a tier the table does not know counts as an unknown GPU."""
    return TIER_SPEED.get(tier, TIER_SPEED[UNKNOWN_GPU_TIER])


def family_of(tier: str) -> str:
    """The kind of hardware in words."""
    return next((family for pattern, family in _FAMILIES if re.fullmatch(pattern, tier)), OTHER_FAMILY)


def region_of(place: str) -> str:
    """The price region of a country: `india` → `in`, `gb` → `uk`, EU members → `eu`, else its code."""
    code = place.strip().lower()
    return _REGION_ALIASES.get(code, code)
