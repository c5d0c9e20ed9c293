"""Checks and comparisons of results, as one word each."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints


def _known_comparison(text: str) -> str:
    """Which numbers make sense is the hub's affair."""
    if not _COMPARISON.fullmatch(text):
        raise ValueError("write exact, tolerance:REL or tolerance:REL,ABS, for example tolerance:1e-6")
    return text


def _known_check(text: str) -> str:
    if not re.fullmatch(_CHECK, text):
        raise ValueError(
            "write none, adaptive, quorum:K with K from 2 to 5, or confidence:P, for example confidence:0.999"
        )
    return text


def check_one_way(verify: str | None, confidence: float | None) -> None:
    """One of the two would be dropped without a word."""
    if verify is not None and confidence is not None:
        raise ValueError("results are checked by verify or by confidence, not by both")


_CHECK = r"^(none|adaptive|quorum:[2-5]|confidence:0\.\d{1,6})$"
VerifyText = Annotated[str, AfterValidator(_known_check), Field(json_schema_extra={"pattern": _CHECK})]
_COMPARISON = re.compile(r"exact|tolerance:[0-9.eE+-]+(,[0-9.eE+-]+)?")


CompareText = Annotated[str, StringConstraints(max_length=80), AfterValidator(_known_comparison)]
