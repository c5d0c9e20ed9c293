"""`make simulation`: compares rules of reputation, prints the tables, and writes them and the figure into docs/."""

from __future__ import annotations

import argparse
from pathlib import Path

from simulation.report import figure, table
from simulation.study import QUICK, Size, run

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_BEGIN, _END = "<!-- simulation: begin -->", "<!-- simulation: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shows that it works; prints only")
    quick = parser.parse_args().quick
    study = run(QUICK if quick else Size())
    for family, name in study.tuned.items():
        print(f"Best of 24 for {family}: {name}")
    print(table(study))
    if quick:
        return
    (_DOCS / "reputation.svg").write_text(figure(study))
    page = _DOCS / "reputation.md"
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{table(study)}\n\n{_END}{after}")


if __name__ == "__main__":
    main()
