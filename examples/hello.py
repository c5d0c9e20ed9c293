"""The first job: it prints a line and writes a file.

Run:  pool submit examples/hello.py --wait
"""

import os
from pathlib import Path

print(f"Hello from job {os.environ.get('COMPUTEPOOL_JOB_ID', 'nowhere')}")
outputs = Path("outputs")  # everything written here is returned as an artifact
outputs.mkdir(exist_ok=True)
(outputs / "hello.txt").write_text("Hello, pool!\n")
