"""`make bench`: our figures with their targets, and those of systems that users might choose instead.

Everything runs in separate processes, one after the other, each with a time limit. The whole takes less than ten minutes;
longer measurements run only on request.
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
    parser.add_argument("--quick", action="store_true", help="small counts, to show that everything works")
    choices = (*NAMES, *LONG_MODULES)
    parser.add_argument("--only", action="append", choices=choices, metavar="NAME", help=", ".join(choices))
    parser.add_argument("--no-peers", action="store_true", help="only our own figures and the floors")
    parser.add_argument("--patience", type=float, metavar="S", help="total time to wait for a quiet machine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    adopt_orphans()
    # As with Ctrl-C, everything that runs is stopped in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    size = "quick" if chosen.quick else "full"
    patience = Patience(PATIENCE_S[size] if chosen.patience is None else chosen.patience)
    names = chosen.only or NAMES
    most_s = WHOLE_S + sum(LIMITS_S[name] for name in LONG_MODULES if name in names)
    run = Run(size, patience, deadline=time.monotonic() + most_s)
    here = ", ".join(f"{what} {value}" for what, value in machine().items())
    print(f"Machine: {here}. It is quiet if other programs use less than {QUIET_CORES} cores.", flush=True)
    ready = [] if chosen.no_peers else prepare(run, [peer for peer in PEERS if peer.key in names])
    measure(run, names, ready)
    if chosen.json:
        chosen.json.write_text(json.dumps(run.results(), indent=1, ensure_ascii=False) + "\n")
    print_results(run)
    measured = {section.name for section in run.sections if not section.problem}
    return 0 if measured.issuperset(name for name in (*MODULES, *LONG_MODULES) if name in names) else 1


def prepare(run: Run, peers: Sequence[Peer]) -> list[tuple[Peer, Path]]:
    """Download everything first, so that nothing is downloaded during a measurement."""
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
        run.ours("throughput")  # again after the peers: the difference shows how far the machine drifts


def print_results(run: Run) -> None:
    print("", "\n".join(table(merged(run.figures), run.systems)).strip("\n"), "", sep="\n")
    print(f"All with {SLOTS} slots on one machine, in one run: a difference under {TIE:.0%} is a tie.")
    print("* is configured to keep accepted work on disk through a crash, as ComputePool does (not crash-tested here).")
    print("The others keep work in memory, and so do less for their numbers.")
    for section in run.sections:
        if section.problem:
            print(section)
    noisy = [part.name for part in run.sections if part.others_meanwhile_cores >= QUIET_CORES]
    if noisy:
        print(f"The machine was not quiet during {', '.join(noisy)}: these numbers are worse than they could be.")
    if run.size == "quick":
        print("Small counts: these numbers show only that everything runs.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; everything was stopped")
