#!/usr/bin/env bash
# Measures what one acquire and release, and what one renewal costs with RedisLease, the raw limit and rslock, and records
# flame graphs of the clients: docs/comparison/profile-PEER-LABEL.svg. Needs perf, strace, and root for allocations.
#
#   hack/profile.sh [LABEL]          the checked-out commit, with the label `after` unless another is given
#   hack/profile.sh LABEL TREE       an older commit in TREE, a worktree of it, with the measurement of this one
#
# bench/profile_page.py writes the tables of docs/profile.md from both results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
label=${1:-after}
tree=${2:-$PWD}
exec python3 bench/profile.py --do cycles,renew --tree "$tree" --flame docs/comparison --label "$label" \
    --system-calls --allocations --json "target/bench/profile-$label.json"
