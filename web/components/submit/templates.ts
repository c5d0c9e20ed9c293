// Example scripts. Each runs on any node: with the standard library and without network.
import type { Form } from "./form";

export interface Template {
  id: string;
  title: string;
  note: string;
  form: Partial<Form>;
}

const HELLO = `import os
import platform
from pathlib import Path

print("Hello from", platform.node(), "with Python", platform.python_version())
print("This is job", os.environ["COMPUTEPOOL_JOB_ID"])

# Files in outputs/ are kept when the job ends.
Path("outputs").mkdir(exist_ok=True)
Path("outputs/hello.txt").write_text("Hello, pool!\\n")
`;

const PI = `import random
import sys

points = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
inside = 0
for n in range(points):
    inside += random.random() ** 2 + random.random() ** 2 < 1
    if n % (points // 20) == 0:
        print(f"::progress {n / points}", flush=True)  # moves the job's progress bar

print(f"pi is about {4 * inside / points:.5f} after {points:,} points")
`;

const SWEEP = `import json
import os
from pathlib import Path

# Every run knows its number: 0, 1, 2 …
mine = int(os.environ["COMPUTEPOOL_SLICE"])
rates = [0.5, 0.1, 0.05, 0.01, 0.005, 0.001]
rate = rates[mine % len(rates)]

# Gradient descent on (x - 3)^2: how close does each rate come in 200 steps?
x = -10.0
for _ in range(200):
    x -= rate * 2 * (x - 3)

Path("outputs").mkdir(exist_ok=True)
found = {"rate": rate, "x": x, "error": abs(x - 3)}
Path(f"outputs/rate-{rate}.json").write_text(json.dumps(found, indent=2))
print(found)
`;

const GPU = `import subprocess
import sys

# The job sees the GPUs that were reserved for it, and no others.
query = "name,memory.total,driver_version,utilization.gpu"
try:
    seen = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True, text=True, check=True,
    )
except (OSError, subprocess.CalledProcessError) as error:
    sys.exit(f"found no GPU: {error}")
print(seen.stdout.strip())
`;

const PICTURE = `import struct
import zlib
from pathlib import Path

WIDTH, HEIGHT, DEPTH = 480, 320, 80


def iterations(x, y):
    c, z = complex(x, y), 0j
    for n in range(DEPTH):
        z = z * z + c
        if abs(z) > 2:
            return n
    return DEPTH


def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


rows = b""
for row in range(HEIGHT):
    rows += b"\\0"
    for column in range(WIDTH):
        n = iterations(column / WIDTH * 3 - 2.1, row / HEIGHT * 2 - 1)
        shade = 0 if n == DEPTH else 255 - n * 255 // DEPTH
        rows += bytes((shade, shade * shade // 255, 255 - shade // 2))
    if row % 16 == 0:
        print(f"::progress {row / HEIGHT}", flush=True)

png = b"\\x89PNG\\r\\n\\x1a\\n"
png += chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
Path("outputs").mkdir(exist_ok=True)
Path("outputs/mandelbrot.png").write_bytes(png)
print("outputs/mandelbrot.png has", len(png), "bytes")
`;

const LONG = `import sys
import time
from pathlib import Path

import computepool

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30

# If the node is lost, the next one resumes from the last checkpoint.
place = computepool.restored()
step, total = map(int, (place / "state.txt").read_text().split()) if place else (0, 0)
print(f"resuming at step {step}" if place else "starting at step 0")

while step < STEPS:
    total += step * step
    time.sleep(0.1)  # your work
    step += 1
    Path("state.txt").write_text(f"{step} {total}")
    computepool.checkpoint("state.txt", progress=step / STEPS)

print(f"the sum of {STEPS} squares is {total}")
`;

export const TEMPLATES: Template[] = [
  { id: "hello", title: "Hello", note: "prints a line and writes a file", form: { file: "hello.py", source: HELLO } },
  {
    id: "pi",
    title: "Monte Carlo π",
    note: "one core, with progress",
    form: { file: "pi.py", source: PI, args: "2000000", timeout: "10m" },
  },
  {
    id: "sweep",
    title: "Parameter sweep",
    note: "six runs as a group",
    form: { file: "sweep.py", source: SWEEP, slices: "6", timeout: "10m" },
  },
  {
    id: "gpu",
    title: "GPU check",
    note: "waits for a node with a GPU",
    form: { file: "gpu.py", source: GPU, gpus: "1", timeout: "5m" },
  },
  {
    id: "picture",
    title: "Picture",
    note: "draws a PNG",
    form: { file: "mandelbrot.py", source: PICTURE, timeout: "10m" },
  },
  {
    id: "long",
    title: "Long job",
    note: "saves checkpoints",
    form: { file: "long.py", source: LONG, args: "30", checkpoints: true, timeout: "2h", retries: "2" },
  },
];
