"""A function applied to many items, with results in order and a progress bar on a terminal.

Run:  python examples/map.py
"""

from computepool import connect


def primes_below(limit: int) -> int:
    """Counts the primes below `limit`; deliberately slow."""
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, limit))


if __name__ == "__main__":
    pool = connect()  # the hub that `pool up` or `pool login` stored
    limits = range(1_000, 9_000, 1_000)
    for limit, count in zip(limits, pool.map(primes_below, limits, cores=1), strict=True):
        print(f"{count} primes below {limit}")
