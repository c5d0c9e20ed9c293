"""`make simulation`: compares reputation rules, and verification rules against cheats. Writes tables and a figure to docs/."""

from __future__ import annotations

import argparse
from pathlib import Path

from simulation import cheat_report
from simulation.report import figure, table
from simulation.study import QUICK, Size, run

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_BEGIN, _END = "<!-- simulation: begin -->", "<!-- simulation: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a small run that only prints, to show that everything works"
    )
    parser.add_argument("--cheats", action="store_true", help="only the study of cheating nodes")
    chosen = parser.parse_args()
    if not chosen.quick:
        cheats = cheat_report.run()
        print(cheats)
        _write(_DOCS / "verification.md", cheats)
    if not chosen.cheats:
        _compare_reputations(quick=chosen.quick)


def _compare_reputations(*, quick: bool) -> None:
    study = run(QUICK if quick else Size())
    for family, name in study.tuned.items():
        print(f"Best of 24 for {family}: {name}")
    print(table(study))
    if quick:
        return
    (_DOCS / "reputation.svg").write_text(figure(study))
    _write(_DOCS / "reputation.md", table(study))


def _write(page: Path, tables: str) -> None:
    """Replace the text between the markers."""
    before, _, rest = page.read_text().partition(_BEGIN)
    page.write_text(f"{before}{_BEGIN}\n\n{tables}\n\n{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    main()
