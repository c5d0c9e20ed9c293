"""Text forms of verification policies and comparisons."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints


def _check_comparison(text: str) -> str:
    """Check the form only; the hub checks the numbers."""
    if not _COMPARISON.fullmatch(text):
        raise ValueError("write exact, tolerance:REL or tolerance:REL,ABS, for example tolerance:1e-6")
    return text


def _check_verification(text: str) -> str:
    if not re.fullmatch(_CHECK, text):
        raise ValueError(
            "write none, adaptive, quorum:K with K from 2 to 5, or confidence:P, for example confidence:0.999"
        )
    return text


def check_one_way(verify: str | None, confidence: float | None) -> None:
    """Refuse both, because one of them would be ignored silently."""
    if verify is not None and confidence is not None:
        raise ValueError("use either verify or confidence, not both")


_CHECK = r"^(none|adaptive|quorum:[2-5]|confidence:0\.\d{1,6})$"
VerifyText = Annotated[str, AfterValidator(_check_verification), Field(json_schema_extra={"pattern": _CHECK})]
_COMPARISON = re.compile(r"exact|tolerance:[0-9.eE+-]+(,[0-9.eE+-]+)?")


CompareText = Annotated[str, StringConstraints(max_length=80), AfterValidator(_check_comparison)]
