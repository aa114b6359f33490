#!/usr/bin/env bash
# Installs what is missing, builds, and shows chorale at work: the smallest program; a network that learns to read
# digits on four ranks and ends with the same weights as on one rank, over shared memory and over TCP; then a short,
# verified benchmark.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }
chorale=build/tools/chorale
digits=build/examples/digits/digits
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# Between ranks of one host "auto" is shared memory.
train() {  # RANKS TRANSPORT: trains, shows the table, keeps the output
  say "digits, $1 rank(s), transport $2"
  CHORALE_DETERMINISTIC=1 CHORALE_TRANSPORT=$2 "$chorale" run -n "$1" -- "$digits" 2>&1 | tee "$results/$1-$2"
}
weights() { grep -o 'fnv1a:[0-9a-f]*' "$results/$1"; }

say "building"
.ci/install build
.ci/setup
ninja -C build --quiet tools/chorale examples/hello examples/digits/digits

say "hello, four ranks"
"$chorale" run -n 4 -- build/examples/hello

train 4 auto
train 1 auto
train 4 tcp

say "weights of the three runs"
for run in 1-auto 4-auto 4-tcp; do printf '%s  %s\n' "$run" "$(weights "$run")"; done
if [ "$(weights 1-auto)" != "$(weights 4-auto)" ] || [ "$(weights 1-auto)" != "$(weights 4-tcp)" ]; then
  echo "run.sh: the weights differ; deterministic mode is broken here" >&2
  exit 1
fi
echo "bitwise the same"

for transport in shm tcp; do
  say "all_reduce between two ranks over $transport, every result checked"
  "$chorale" bench all_reduce --ranks 2 --transport "$transport" -b 8 -e 1M -f 128
done
