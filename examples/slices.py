"""One script in several slices: each does its part and reports its progress.

Run:  pool submit examples/slices.py --slices 4 --wait --out results
"""

import json
import random
from pathlib import Path

from computepool import job_slice, outputs, progress

POINTS = 200_000

mine, of = job_slice()  # the number of this slice, and the number of slices
rng = random.Random(mine)  # different points in each slice, and the same ones in a retry
inside = 0
for n in range(POINTS):
    inside += rng.random() ** 2 + rng.random() ** 2 < 1
    if n % (POINTS // 20) == 0:
        progress(n / POINTS)

Path(outputs()).mkdir(exist_ok=True)
(outputs() / "part.json").write_text(json.dumps({"slice": mine, "inside": inside, "points": POINTS}))
print(f"slice {mine} of {of}: pi is about {4 * inside / POINTS:.4f}")
