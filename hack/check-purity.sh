#!/usr/bin/env bash
# Checks that the pure modules stay pure: the core compiles without std, and the others have no IO crate in their
# dependency tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The compiler gets a std that does not exist, so any use of std fails to compile.
cargo rustc --quiet --package redislease-core --lib --profile check -- --extern std=/there-is-no-std-for-the-core

tree() { cargo tree --edges normal --prefix none --format '{lib}' "$@" | sort -u; }

core=$(tree --package redislease-core)
[[ $core == redislease_core ]] || die "redislease-core has dependencies; it may have none: ${core//$'\n'/ }"

# A release contains no planted bug. The core is compiled as for a release and as for the checkers: the names of planted
# bugs must be absent from the first and present in the second, so that a list that does not match fails too.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bugs=$(sed -nE 's/^    ([A-Z][A-Za-z]+): [A-Z][A-Za-z |]+,$/\1/p' crates/core/src/check/mutant.rs)
[[ $(wc -w <<<"$bugs") -gt 30 ]] || die "crates/core/src/check/mutant.rs lists no planted bugs"
compile() { # compile <file> <more arguments>
    rustc --edition 2024 --crate-type lib --crate-name redislease_core --emit "metadata=$1" "${@:2}" crates/core/src/lib.rs
}
compile "$scratch/release" && compile "$scratch/check" --cfg 'feature="check"'
for bug in $bugs; do
    grep -qa "$bug" "$scratch/check" || die "the core with the feature check does not know the planted bug $bug"
    ! grep -qa "$bug" "$scratch/release" || die "the core without the feature check contains the planted bug $bug"
done
enabled=$(cargo tree --workspace --edges normal,build,features --invert redislease-core | grep 'redislease-core feature "check"') || true
[[ -z $enabled ]] || die "a crate that is not a test enables the feature check of redislease-core; only dev-dependencies may"

# The crate of the decisions has no crate with IO in its tree. Cargo keeps it from the crates that come after it.
io='tokio|redis|hyper|kube_client|kube_runtime|axum|rustls|rustix|mio|socket2|reqwest|tower'
all=$(tree --package redislease-plan)
found=$(grep -xE "$io" <<<"$all" | xargs) || true
[[ -z $found ]] || die "redislease-plan must bring no IO, and brings $found (cargo tree --package redislease-plan --invert CRATE)"

# The lock layer and `redislease run` are for machines without Kubernetes and without a metrics library.
for package in redislease-lock redislease-run; do
    all=$(tree --package "$package")
    found=$(grep -E '^(kube|k8s|prometheus)' <<<"$all" | xargs) || true
    [[ -z $found ]] || die "$package must do without Kubernetes and Prometheus, and brings $found"
done

# The dependencies between the modules of a crate point in one direction.
arrow() { # arrow <folder> <modules that it must not use, as a pattern>
    local found code=0
    # A file of tests may use any module.
    found=$(grep -rnE --exclude="*tests.rs" "^[^/]*(crate|use redislease_lock)::(\{[^}]*)?($2)\b" "$1") || code=$?
    case $code in
        0) die "$1 uses a module that it must not use:
$found" ;;
        1) ;;
        *) die "$1 cannot be searched" ;;
    esac
}
arrow crates/plan/src/api 'election|status|plan|index|annotations|engine'
arrow crates/plan/src/election 'status|plan|index|annotations|engine'
arrow crates/plan/src/status 'plan|index|annotations|engine'
arrow crates/plan/src/plan 'index|annotations|engine'
arrow crates/plan/src/index 'annotations|engine'
arrow crates/plan/src/annotations 'engine'
arrow crates/lock/src/nodes 'keeper'
arrow src/metrics 'operator|cli|http|telemetry'
arrow src/http 'operator|cli|telemetry'
arrow src/telemetry 'operator|cli|http|metrics'
arrow src/operator 'cli|telemetry'
echo "pure: core without std, dependencies and planted bugs, plan without IO, lock without Kubernetes and Prometheus, arrows one way"
