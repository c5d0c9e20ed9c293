"""`make bench`: our figures with their targets, and in the same go what a user would pick instead.

Everything runs in processes of its own, one after the other, each bounded in time, the whole in under ten minutes;
what takes longer is measured only where it is asked for.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.children import NotMeasured, adopt_orphans
from bench.comparison import TIE, merged, table
from bench.ours import LONG_MODULES, MODULES
from bench.peers.catalogue import PEERS, Peer
from bench.peers.measure import SLOTS
from bench.quiet import QUIET_CORES, Patience
from bench.sections import LIMITS_S, Run, Section, machine

WHOLE_S = 560.0
PATIENCE_S = {"full": 90.0, "quick": 6.0}
INSTALL_S = 150.0  #: for all peers together
NAMES = (*MODULES, "floors", *(peer.key for peer in PEERS))


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small counts: shows that it works, not how fast"
    )
    choices = (*NAMES, *LONG_MODULES)
    parser.add_argument("--only", action="append", choices=choices, metavar="NAME", help=", ".join(choices))
    parser.add_argument("--no-peers", action="store_true", help="only our own figures and the floors")
    parser.add_argument(
        "--patience", type=float, metavar="S", help="wait at most this long for a quiet machine, all in all"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(arguments)
    adopt_orphans()
    # As Ctrl-C does: whatever runs is stopped in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = "quick" if asked.quick else "full"
    patience = Patience(PATIENCE_S[size] if asked.patience is None else asked.patience)
    names = asked.only or NAMES
    most_s = WHOLE_S + sum(LIMITS_S[name] for name in LONG_MODULES if name in names)
    run = Run(size, patience, deadline=time.monotonic() + most_s)
    here = ", ".join(f"{what} {value}" for what, value in machine().items())
    print(f"Machine: {here}. It is quiet while others use less than {QUIET_CORES} cores.", flush=True)
    ready = [] if asked.no_peers else prepare(run, [peer for peer in PEERS if peer.key in names])
    measure(run, names, ready)
    if asked.json:
        asked.json.write_text(json.dumps(run.results(), indent=1, ensure_ascii=False) + "\n")
    print_results(run)
    measured = {section.name for section in run.sections if not section.problem}
    return 0 if measured.issuperset(name for name in (*MODULES, *LONG_MODULES) if name in names) else 1


def prepare(run: Run, peers: Sequence[Peer]) -> list[tuple[Peer, Path]]:
    """All downloads come first, so that none runs beside a measurement."""
    deadline = time.monotonic() + INSTALL_S
    ready = []
    for peer in peers:
        try:
            ready.append((peer, peer.prepare(limit_s=deadline - time.monotonic())))
        except NotMeasured as reason:
            run.sections.append(Section(name=peer.key, problem=str(reason)))
            print(run.sections[-1], flush=True)
    return ready


def measure(run: Run, names: Sequence[str], ready: list[tuple[Peer, Path]]) -> None:
    for name in (*MODULES, *LONG_MODULES):
        if name in names:
            run.ours(name)
    if "floors" in names:
        run.floors()
    for peer, python in ready:
        run.peer(peer, python)
    if ready and "throughput" in names:
        run.ours(
            "throughput"
        )  # before and after the peers: how far apart the two are is how far the machine drifts


def print_results(run: Run) -> None:
    print("", "\n".join(table(merged(run.figures), run.systems)).strip("\n"), "", sep="\n")
    print(f"All with {SLOTS} slots on one machine, in one run: a difference under {TIE:.0%} is a tie.")
    print(
        "* keeps accepted work on disk through a crash, as ComputePool does (so set up; not crash-tested here)."
    )
    print("Those without it keep work in memory: they do less for their numbers.")
    for section in run.sections:
        if section.problem:
            print(section)
    noisy = [part.name for part in run.sections if part.others_meanwhile_cores >= QUIET_CORES]
    if noisy:
        print(
            f"The machine was not quiet during {', '.join(noisy)}: these numbers are worse than they could be."
        )
    if run.size == "quick":
        print("Small counts: these numbers show that everything runs, and judge nothing.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that ran was stopped")
