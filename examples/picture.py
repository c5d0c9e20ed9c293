"""Input and output files: a node turns a picture into its negative.

This file has both parts: started by you, it submits itself; started on a node, it does the work.

Run:  python examples/picture.py
"""

import os
import tempfile
from pathlib import Path

import computepool

WIDTH, HEIGHT = 320, 200


def negative(source: Path, target: Path) -> None:
    """A PPM file has three lines of text, followed by one byte per colour value."""
    kind, size, depth, pixels = source.read_bytes().split(b"\n", 3)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"\n".join([kind, size, depth, bytes(255 - value for value in pixels)]))


def gradient() -> bytes:
    pixels = bytes(v for y in range(HEIGHT) for x in range(WIDTH) for v in (x % 256, y, (x + y) % 256))
    return b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + pixels


def submit() -> None:
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, "gradient.ppm")
        picture.write_bytes(gradient())
        outcome = computepool.connect().run(__file__, inputs=[picture])  # waits, and raises if the job failed
        for path in outcome.download("results"):
            print(f"{path}: {path.stat().st_size} bytes, made by {outcome.job_id}")


if "COMPUTEPOOL_JOB_ID" in os.environ:
    negative(Path("gradient.ppm"), Path("outputs/negative.ppm"))  # inputs are in the job's working directory
else:
    submit()
