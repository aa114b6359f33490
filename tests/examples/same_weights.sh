#!/usr/bin/env bash
# same_weights.sh CHORALE DIGITS: the trainer ends with bitwise the same weights on one rank and on four, over shared
# memory and over TCP; and with others from another seed, so that equality means something.
set -euo pipefail
chorale=$1
digits=$2

weights() {  # RANKS TRANSPORT [OPTIONS]
  local ranks=$1 transport=$2 output
  shift 2
  output=$(CHORALE_DETERMINISTIC=1 CHORALE_TRANSPORT=$transport \
    "$chorale" run -n "$ranks" --timeout 120 -- "$digits" --epochs 3 "$@")
  grep -o 'fnv1a:[0-9a-f]*' <<<"$output"
}

alone=$(weights 1 auto)
four=$(weights 4 auto)
four_tcp=$(weights 4 tcp)
other=$(weights 1 auto --seed 2)
printf '%s one rank\n%s four ranks\n%s four ranks, tcp\n%s another seed\n' "$alone" "$four" "$four_tcp" "$other"
[ "$alone" = "$four" ] && [ "$alone" = "$four_tcp" ] && [ "$alone" != "$other" ]
