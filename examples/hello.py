"""The first job: it prints, and leaves a file.

Run:  pool submit examples/hello.py --wait
"""

import os
from pathlib import Path

print(f"Hello from job {os.environ.get('COMPUTEPOOL_JOB_ID', 'nowhere')}")
outputs = Path("outputs")  # everything written here comes back as an artifact
outputs.mkdir(exist_ok=True)
(outputs / "hello.txt").write_text("Hello, pool!\n")
