#!/usr/bin/env bash
# Counts the processor instructions of the lease machine with valgrind, and fails if a step needs more than its limit. A count
# does not depend on the load of the machine; the limits leave a fifth of room for other compilers.
#
#   hack/instructions.sh            counts
#   hack/instructions.sh available  whether valgrind is installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == available ]]; then
    command -v valgrind >/dev/null
    exit
fi

target=${CARGO_TARGET_DIR:-target}
cargo build --quiet --locked --release --package redislease-core --example steps

total() { # step, how often
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$target/release/examples/steps" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}

failed=
check() { # step, what it is, limit
    local few many each
    # The difference does not contain the start of the program.
    few=$(total "$1" 100) many=$(total "$1" 300)
    each=$(((many - few) / 200))
    printf '%s: %d instructions, limit %d\n' "$2" "$each" "$3"
    ((each <= $3)) || failed=yes
}

check acquire "acquire, publish and release of one lease on three nodes" 27000
check renew "renewal of 100 leases on three nodes" 690000
if [[ -n $failed ]]; then
    echo "error: a step needs more instructions than its limit: make it cheaper, or raise the limit with the reason" >&2
    exit 1
fi
