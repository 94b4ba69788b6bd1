#!/usr/bin/env bash
# Measures what one acquire and release costs with RedisLease, the raw limit and rslock, and records flame graphs of the
# clients: docs/comparison/profile-PEER-LABEL.svg. Needs perf and strace.
#
#   hack/profile.sh [LABEL]      the checked-out commit, with the label `after` unless another is given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
label=${1:-after}
mkdir -p target/bench
exec python3 bench/profile.py --flame docs/comparison --label "$label" --system-calls --json "target/bench/profile-$label.json"
