#!/usr/bin/env bash
# Changes the code in small ways, one at a time, and runs the tests of the changed crate: a change that no test notices shows a test
# that is missing, or code that does nothing. Prints the changes that no test noticed and that hack/mutants.txt does not explain, and
# fails if there are any. A run that was stopped goes on where it was; `rm -r target/mutants` begins again.
#
#   hack/mutants.sh [PART...]      core calls plan scripts; these if none is named, and changed
#
#   core      all of crates/core but the planted bugs and the reference node
#   calls     the queue of calls to the API server
#   plan      one of SHARDS (8) parts of the reconciler and the engine: SHARD (0) says which one
#   scripts   the Lua scripts, by hack/mutate-lua.py, against real servers
#   changed   the lines of crates/core and crates/plan that the commits of the last day changed
#
# MUTANTS_MINUTES ends each part after this time, before all changes were tried.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=27.1.0
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/cargo-mutants-$version
explained=hack/mutants.txt
results=target/mutants
status=0

all=(core calls plan scripts)
parts=("${@:-${all[@]}}")
for part in "${parts[@]}"; do
    [[ " ${all[*]} changed " == *" $part "* ]] || { echo "error: $part is none of: ${all[*]} changed" >&2; exit 2; }
done

if [[ ! -x $folder/bin/cargo-mutants ]]; then
    scratch=$(mktemp -d)
    CARGO_TARGET_DIR=$scratch cargo install cargo-mutants --version "$version" --locked --root "$folder" || exit
    rm -rf "$scratch"
fi
export PATH=$folder/bin:$PATH
# A random test that fails by chance would save its case beside its source and fail again with every later change: each would count
# as noticed. The seed is fixed, so that a test fails because of the change.
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 PROPTEST_RNG_SEED=1
limit=()
[[ -n ${MUTANTS_MINUTES:-} ]] && limit=(timeout --signal=INT "${MUTANTS_MINUTES}m")

rust() { # part, package, arguments of cargo mutants...
    local part=$1 package=$2
    shift 2
    mkdir -p "$results/$part"
    local code=0
    "${limit[@]}" cargo mutants --package "$package" --output "$results/$part" --iterate --no-shuffle --colors never --profile mutants \
        --minimum-test-timeout 20 --build-timeout 600 "$@" || code=$?
    # Not noticed, took too long, and the end of the time limit. Anything else means that nothing was tested, as with tests that fail
    # without a change.
    case $code in 0 | 2 | 3 | 124) ;; *) echo "error: cargo mutants failed with code $code" >&2; status=1 ;; esac
    # Changes that were not noticed or not tried again: their names without the places, which move.
    cat "$results/$part"/mutants.out*/missed.txt 2>/dev/null | sed -E 's/^([^:]+):[0-9]+:[0-9]+:/\1:/' | sort -u >"$results/$part.missed"
}

core() { rust core redislease-core --exclude '**/check/**' --cargo-arg=--lib; }
calls() { rust calls redislease-plan --file 'crates/plan/src/plan/calls/**' --cargo-arg=--lib; }
plan() {
    rust "plan-${SHARD:-0}" redislease-plan --file 'crates/plan/src/plan/**' --file 'crates/plan/src/engine/**' \
        --exclude 'crates/plan/src/plan/calls/**' --shard "${SHARD:-0}/${SHARDS:-8}" --cargo-arg=--lib
}
changed() {
    local base
    base=$(git rev-list -1 --before='1 day ago' HEAD)
    [[ -n $base ]] || return 0
    git diff "$base" HEAD -- crates/core/src crates/plan/src >"$results/changed.diff"
    rust changed redislease-core --package redislease-plan --in-diff "$results/changed.diff" --exclude '**/check/**' --cargo-arg=--lib
}
scripts() {
    local code=0
    "${limit[@]}" hack/mutate-lua.py "$results/scripts.missed" || code=$?
    case $code in 0 | 124) ;; *) status=1 ;; esac
}

mkdir -p "$results"
for part in "${parts[@]}"; do
    printf '\n== %s\n' "$part"
    "$part"
done
for missed in "$results"/*.missed; do
    new=$(grep -vxFf <(sed -n 's/^\([^#].*\)$/\1/p' "$explained") "$missed")
    printf '%s: %d not noticed, %d of them not explained in %s\n' "$(basename "$missed" .missed)" "$(wc -l <"$missed")" \
        "$(grep -c . <<<"$new")" "$explained"
    [[ -z $new ]] || { printf '%s\n' "$new"; status=1; }
done
exit $status
