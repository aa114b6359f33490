#!/usr/bin/env bash
# survivor.sh CHORALE SURVIVOR: of four ranks one is killed; the others say so, and do all steps as three.
set -euo pipefail
output=$("$1" run -n 4 --on-loss continue --timeout 60 -- "$2" 2>&1) || { printf '%s\n' "$output"; exit 1; }
printf '%s\n' "$output"
for rank in 0 1 2; do grep -q "rank $rank of 3 did 10 steps" <<<"$output"; done
grep -q "rank 1: timed_out" <<<"$output"
grep -q "peer_lost: .*(rank 2)" <<<"$output"
