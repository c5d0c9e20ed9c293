"""A measured figure and its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    target: float | None = None
    lower_is_better: bool = False
    note: str = ""

    @property
    def ok(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.lower_is_better else self.value >= self.target

    @property
    def target_text(self) -> str:
        if self.target is None:
            return ""
        sign = "≤" if self.lower_is_better else "≥"
        return f"target {sign} {self.target:g} {self.unit}: {'met' if self.ok else 'MISSED'}"

    def __str__(self) -> str:
        target = f"  {self.target_text}" if self.target_text else ""
        note = f"  ({self.note})" if self.note else ""
        return f"{self.name:<58} {self.value:>12,.1f} {self.unit:<5}{target}{note}"
