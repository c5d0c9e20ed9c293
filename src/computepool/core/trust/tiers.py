"""The tier of a GPU, the speed of a tier, and the price region of a country.

A tier is a routing key, not a benchmark: people request tiers (`--tier rtx-4090`) and prices refer to them. Used by
agents, too, so heavy imports are not allowed here.
"""

from __future__ import annotations

import re

from computepool.core.resources import CPU_TIER, UNKNOWN_GPU_TIER

#: Card names are lower-cased, other characters become single spaces, and the first matching pattern names the tier (`\1` is
#: the captured text). A longer name comes before a shorter one that it contains (`gtx-1080ti` before `gtx-1080`). Ti and
#: Super cards share the tier of the plain card unless they have a row of their own.
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
    # Other makers: the name is kept, so that people can request it
    (r"\brx ?(\d{4}) ?(xtx|xt|gre)?\b", r"rx-\1\2"),
    (r"\barc (?:tm )?([ab]\d{3})m?\b", r"arc-\1"),
    (r"\bapple (m\d+) (pro|max|ultra)\b", r"apple-\1-\2"),
    (r"\bapple (m\d+)\b", r"apple-\1"),
    # Cards that are not in the tables below: the name gives the family, measurements the rest (core/trust/hardware.py)
    (r"\brtx ?(\d{4})", r"rtx-\1"),
    (r"\bgtx ?(\d{3})\b", r"gtx-\1"),
    (r"\bnvidia g?([bh]\d{3})\b", r"\1"),
)

#: For each tier, its speed relative to an unknown GPU, times 100 (an integer, because prices are multiplied by it). Consumer
#: cards and `cpu` are as in the project's price table; the others are placed between them by published throughput.
#: For cards that the agent can measure (agent/hardware/measure.py), also the GFLOPS of a product of two half-precision 4096²
#: matrices with single-precision accumulation: careful estimates from specifications. Only the H200 was measured (829
#: TFLOPS).
_TIERS: dict[str, tuple[int, int | None]] = {
    CPU_TIER: (80, None), "cpu-slow": (40, None), "cpu-tiny": (15, None), UNKNOWN_GPU_TIER: (100, None),
    "gtx-1050": (100, 1_800), "gtx-1060": (110, 4_000), "gtx-1650": (110, 3_000), "gtx-1660": (130, 5_000),
    "gtx-1070": (140, 6_000), "gtx-1080": (150, 8_000), "gtx-1080ti": (150, 11_000), "rtx-2060": (170, 24_000),
    "rtx-2070": (200, 28_000), "rtx-2080": (200, 38_000), "rtx-3050": (150, 16_000), "rtx-3060": (200, 24_000),
    "rtx-3070": (200, 38_000), "rtx-3080": (200, 58_000), "rtx-3090": (250, 68_000), "rtx-4050": (170, 22_000),
    "rtx-4060": (200, 28_000), "rtx-4070": (250, 56_000), "rtx-4080": (280, 95_000), "rtx-4090": (300, 155_000),
    "rtx-5050": (180, 24_000), "rtx-5060": (220, 36_000), "rtx-5070": (260, 60_000), "rtx-5080": (290, 110_000),
    "rtx-5090": (300, 200_000),
    "rx-6800xt": (180, None), "rx-6900xt": (190, None), "rx-7800xt": (200, None), "rx-7900xt": (220, None),
    "rx-7900xtx": (240, None), "rx-9070xt": (240, None),
    "rtx-a4000": (180, 70_000), "rtx-a5000": (230, 100_000), "rtx-a6000": (260, 140_000),
    "rtx-6000-ada": (330, 280_000), "rtx-pro-6000": (400, 380_000),
    "k80": (80, None), "p4": (100, 4_500), "p40": (140, 10_000), "p100": (150, 16_000), "t4": (150, 40_000),
    "a16": (120, 15_000), "a10": (220, 90_000), "a30": (250, 135_000), "a40": (260, 120_000), "l4": (200, 75_000),
    "l40": (330, 160_000), "l40s": (350, 280_000), "v100": (230, 90_000), "a800": (400, 240_000),
    "a100": (400, 240_000), "mi210": (300, None), "mi250": (380, None), "mi250x": (400, None), "mi300a": (600, None),
    "mi300x": (650, None), "mi325x": (680, None), "h20": (400, 130_000), "h800": (600, 600_000), "h100": (600, 600_000),
    "gh200": (640, 650_000), "h200": (680, 720_000), "b200": (1000, 1_500_000), "b300": (1100, 1_600_000),
}  # fmt: skip
TIER_SPEED = {tier: speed for tier, (speed, _) in _TIERS.items()}
TIER_GFLOPS = {tier: gflops for tier, (_, gflops) in _TIERS.items() if gflops is not None}

#: The reference for the score of a core, and its score (agent/hardware/measure.py).
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
    "el": "eu",  # the EU's own code for Greece
    **dict.fromkeys(_EU_MEMBERS.split(), "eu"),
}

#: Families of tiers: few enough to distinguish on a map.
_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"cpu(-.*)?", "processor"),
    (r"([ghb]+\d{2,3}|[alptvk]\d{1,3}s?|mi\d+[ax]?)(-mig)?", "data centre card"),
    (r"rtx-pro-.*|rtx-\d+-ada|rtx-a\d+|quadro-.*", "workstation card"),
    (r"(rtx|gtx|titan|rx|arc)-.*", "desktop card"),
)
OTHER_FAMILY = "other card"

_COMPILED = tuple((re.compile(pattern), tier) for pattern, tier in GPU_PATTERNS)
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def tier_of(gpu_name: str) -> str:
    """The tier of a card by its name: `cpu` for an empty name, `gpu` for an unknown one."""
    words = _SEPARATORS.sub(" ", gpu_name.lower()).strip()
    if not words:
        return CPU_TIER
    for pattern, tier in _COMPILED:
        if match := pattern.search(words):
            # A MIG device is a slice of a card: unknown until it is measured, and of the card's family.
            return match.expand(tier) + ("-mig" if "mig" in words.split() else "")
    return UNKNOWN_GPU_TIER


def speed_of(tier: str) -> int:
    """The tier's speed times 100. An unknown tier counts as an unknown GPU."""
    return TIER_SPEED.get(tier, TIER_SPEED[UNKNOWN_GPU_TIER])


def family_of(tier: str) -> str:
    return next((family for pattern, family in _FAMILIES if re.fullmatch(pattern, tier)), OTHER_FAMILY)


def region_of(place: str) -> str:
    """The price region of a country: `india` → `in`, `gb` → `uk`, EU members → `eu`, others → their code."""
    code = place.strip().lower()
    return _REGION_ALIASES.get(code, code)
