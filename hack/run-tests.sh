#!/usr/bin/env bash
# The checks and tests, step by step, with a summary at the end.
#
#   hack/run-tests.sh fast   what needs no server: format, lints, purity, unit tests, model and simulator
#   hack/run-tests.sh all    and the tests on real Redis servers and a real control plane
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-}
case $what in fast | all) ;; *) echo "error: say fast or all" >&2; exit 2 ;; esac

# What is tested does not depend on what somebody exported to look at one seed, or to leave a demo up.
unset KEEP MODEL REDISLEASE_TEST_SEED
for variable in "${!SIM_@}"; do unset "$variable"; done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=()
failed=
started=$SECONDS

step() { # name, command...
    local name=$1 began=$SECONDS
    shift
    if [[ -n $failed ]]; then
        summary+=("$(printf '%-22s not run' "$name")")
        return
    fi
    printf '\n== %s: %s\n' "$name" "$*"
    if "$@" 2>&1 | tee -a "$log"; then
        summary+=("$(printf '%-22s ok      %4d s' "$name" $((SECONDS - began)))")
    else
        failed=$name
        summary+=("$(printf '%-22s FAILED  %4d s' "$name" $((SECONDS - began)))")
    fi
}

# A toolchain may come without them. Who develops needs them; tests can pass without.
component() { # subcommand, name, command...
    local subcommand=$1 name=$2
    shift 2
    if cargo "$subcommand" --version >/dev/null 2>&1; then
        step "$name" "$@"
    elif [[ $what == all ]]; then
        summary+=("$(printf '%-22s skipped: this toolchain has no cargo %s' "$name" "$subcommand")")
    else
        echo "error: cargo $subcommand is missing: run \`rustup component add rustfmt clippy\`" >&2
        exit 1
    fi
}

# A later toolchain has lints that nobody here has seen: with it they are shown and stop nothing.
pinned=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
deny=()
[[ $(rustc --version) != "rustc $pinned"* ]] || deny=(-- -D warnings)

component fmt format cargo fmt --all --check
component clippy lints cargo clippy --locked --workspace --all-targets "${deny[@]}"
step purity hack/check-purity.sh
if [[ $what == fast ]]; then
    step "unit tests" cargo test --locked --workspace --lib --bins --no-fail-fast
    export MODEL=quick
    step "model and simulator" cargo test --locked --package redislease-core --package redislease-sim --no-fail-fast --test '*'
else
    export SIM_SEEDS=5000
    step "all tests" cargo test --locked --workspace --no-fail-fast
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$log" |
    awk '{ passed += $1; failed += $2; ignored += $3 }
         END { printf "tests: %d passed, %d failed, %d not run by default\n", passed, failed, ignored }'
sed -nE 's/^test (.*) \.\.\. FAILED$/failed: \1/p' "$log" | sort -u
printf '%d s in all\n' $((SECONDS - started))
[[ -z $failed ]]
