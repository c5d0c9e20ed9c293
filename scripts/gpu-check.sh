#!/bin/bash
# Runs tests/gpu and bench/gpu.py on a machine with a GPU, as root, without a network. Prints everything; the page for
# docs/gpu.md is also written to OUT/gpu.md. Takes less than six minutes.
#
#   scripts/gpu-check.sh
#   KIT=.gpu-kit                     made by scripts/gpu-kit.sh
#   TORCH=/opt/torch/.venv           a virtualenv with torch
#   OUT=.                            folder for the results
#   PARTS="tests bench"              what to run
#   TESTS="tests/gpu"                tests to run, with further arguments of pytest
#   TEST_S=150 BENCH_S=200           time limits
set -uo pipefail
cd "$(dirname "$0")/.."

KIT=${KIT:-.gpu-kit} TORCH=${TORCH:-/opt/torch/.venv} OUT=${OUT:-.} PARTS=${PARTS:-tests bench}
TESTS=${TESTS:-tests/gpu} TEST_S=${TEST_S:-150} BENCH_S=${BENCH_S:-200}
python=$TORCH/bin/python3
unpacked=$(mktemp -d /tmp/gpu-kit-XXXXXX)
trap 'rm -rf "$unpacked"' EXIT
tar -C "$unpacked" -xzf "$KIT/site.tar.gz" || exit 1
export PYTHONUNBUFFERED=1 PYTHONPATH=$unpacked/site:$PWD/src:$PWD COMPUTEPOOL_TORCH=$TORCH
mkdir -p "$OUT"

say() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

say 'machine'
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,mig.mode.current --format=csv || echo 'no nvidia-smi'
"$python" -c 'import sys, numpy; print("Python", sys.version.split()[0], "NumPy", numpy.__version__)' || exit 1

# A library that this machine lacks comes from the kit; its own comes first.
if ! command -v bwrap >/dev/null; then
	install -m 755 "$KIT/bin/bwrap" /usr/local/bin/bwrap
	if ldd /usr/local/bin/bwrap | grep -q 'not found'; then
		cp "$KIT"/lib/* /usr/local/lib/
		ldconfig
	fi
fi
bwrap --version || exit 1
"$python" -c 'import computepool.hub.app, computepool.agent.agent, pytest' || exit 1

failed=0
if [[ " $PARTS " == *' tests '* ]]; then
	say 'tests'
	# shellcheck disable=SC2086 - several words on purpose
	timeout -k 10 "$TEST_S" "$python" -m pytest -q -s --durations=15 $TESTS 2>&1 || failed=1
fi
if [[ " $PARTS " == *' bench '* ]]; then
	say 'bench'
	timeout -k 10 "$BENCH_S" "$python" -m bench.gpu "$TORCH" --drop-caches --out "$OUT/gpu.md" 2>&1 || failed=1
fi
say "end, $([ $failed = 0 ] && echo 'all well' || echo 'with failures')"
exit $failed
