#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests that this machine can run.
# The last line counts them; the exit code is 0 when none failed.
set -euo pipefail
cd "$(dirname "$0")"

.ci/install build test
.ci/setup
echo "building"
from=$SECONDS
ninja -C build --quiet all meson-test-prereq
echo "building took $((SECONDS - from)) s"

echo "testing"
from=$SECONDS
.ci/run-tests build
echo "testing took $((SECONDS - from)) s"
.ci/count build
