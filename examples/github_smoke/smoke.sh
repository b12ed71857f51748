#!/usr/bin/env bash
# The verdict that CI will give, before pushing. Needs: pip install sweep-gatekeeper numpy
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
log=$(mktemp -d)/train.jsonl
trap 'rm -rf "$(dirname "$log")"' EXIT
gatekeeper run --smoke --verdict-exit --log "$log" -- python train.py --log "$log" "$@"
