"""A detached group: submit it, close the laptop, and find the files on your home node.

Run:  python examples/detached_group.py --anywhere

`--anywhere` is for a pool with a single machine. With several (docs/jobs.md starts three), leave it out: the first bundle
requires a host with the tag `linux`, the others prefer `gpu`, and none of them runs on the home node.
"""

import argparse
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass, replace

from computepool import ComputeJob, ComputeJobState, connect, submit_compute_job_group

TEXTS = {
    "bundle-a": "the rain in spain stays mainly in the plain",
    "bundle-b": "the quick brown fox jumps over the lazy dog",
    "bundle-c": "a rose is a rose is a rose",
}


@dataclass
class IndexState(ComputeJobState):
    text: str = ""
    seconds: float = 0.0  # extra run time, so that there is something to watch


class Index(ComputeJob[IndexState]):
    """Writes the word counts of a text to an SQLite file. Runs on any host; nothing has to be installed there."""

    def run_compute_job(self) -> None:
        time.sleep(self.state.seconds)
        path = self.work_dir() / f"{self.state.job_key}.db"
        words = Counter(self.state.text.split())
        with sqlite3.connect(path) as database:
            database.execute("create table words (word text primary key, times integer)")
            database.executemany("insert into words values (?, ?)", sorted(words.items()))
        database.close()
        self.report_compute_artifact(path, result={"words": words.total()}, move=True)


def bundles(*, anywhere: bool, seconds: float) -> list[IndexState]:
    states = [IndexState(job_key=key, text=text, seconds=seconds) for key, text in TEXTS.items()]
    if anywhere:
        return [replace(state, allow_home_compute=True) for state in states]
    first, *others = states
    return [
        replace(first, required_host_tags=("linux",)),
        *(replace(state, excluded_host_tags=("laptop",), preferred_host_tags=("gpu",)) for state in others),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words on other machines.")
    parser.add_argument("--anywhere", action="store_true", help="run on any host, including this one")
    parser.add_argument("--seconds", type=float, default=0.0, help="run time of each job")
    parser.add_argument("--home", help="one of your hosts, by name; default: the host on this machine")
    args = parser.parse_args()

    pool = connect()  # the hub that `pool host`, `pool up` or `pool login` stored
    submitted = submit_compute_job_group(
        pool, Index, bundles(anywhere=args.anywhere, seconds=args.seconds), name="word counts", home=args.home
    )
    print(f"{submitted.group_id}: {len(submitted.job_ids)} jobs; results go to {submitted.home}", flush=True)
    print("The jobs continue without this program. You may press Ctrl-C.", flush=True)

    summary = submitted.drain(timeout=600)
    for report in submitted.reports():
        print(f"{report.key}: {report['words']} words, in {report.outputs[0].name}")
    print(f"{summary.succeeded} of {summary.total} are done. Later: pool jobs groups --group {summary.id}")
