#!/usr/bin/env bash
# same_sum.sh CHORALE EXAMPLE: on four ranks, each says that the ranks add up to 6.
set -euo pipefail
output=$("$1" run -n 4 --timeout 60 -- "$2")
printf '%s\n' "$output"
for rank in 0 1 2 3; do grep -q "rank $rank of 4: the ranks add up to 6" <<<"$output"; done
