#!/usr/bin/env bash
# Runs the checks and tests step by step, with a summary at the end.
#
#   hack/run-tests.sh fast   checks that need no server: format, lints, purity, unit tests, model and simulator
#   hack/run-tests.sh all    also the tests on real Redis servers and a real control plane
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-}
case $what in fast | all) ;; *) echo "error: say fast or all" >&2; exit 2 ;; esac

# Variables that select a seed, or keep servers running, must not change what is tested.
unset KEEP MODEL REDISLEASE_TEST_LEASES REDISLEASE_TEST_LOSSES REDISLEASE_TEST_ROUNDS REDISLEASE_TEST_SEED
for variable in "${!SIM_@}"; do unset "$variable"; done
# The simulator runs fixed seeds, and some that each commit draws anew.
if commit=$(git rev-parse --short=7 HEAD 2>/dev/null); then
    export SIM_FRESH=$((16#${commit:0:7}))
    echo "first fresh seed of the simulator: SIM_FRESH=$SIM_FRESH (from commit $commit)"
fi

log=$(mktemp)
beside=$(mktemp)
beside_pid=
# The processes of the tests beside the others form a group.
trap '[[ -z $beside_pid ]] || kill -- "-$beside_pid" 2>/dev/null; rm -f "$log" "$beside"' EXIT
summary=()
failed=
started=$SECONDS

run() { # name, command...
    local name=$1 began=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if "$@" 2>&1 | tee -a "$log"; then
        summary+=("$(printf '%-22s ok      %4d s' "$name" $((SECONDS - began)))")
    else
        failed=$name
        summary+=("$(printf '%-22s FAILED  %4d s' "$name" $((SECONDS - began)))")
    fi
}

step() { # name, command...: not run after a step that failed
    if [[ -n $failed ]]; then
        summary+=("$(printf '%-22s not run' "$1")")
    else
        run "$@"
    fi
}

# A toolchain may lack rustfmt or clippy. Developers need them; the tests can pass without them.
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

tests() { # name, arguments of cargo test...: runs also after other tests that failed
    run "$1" cargo test --locked --workspace --no-fail-fast "${@:2}" "${timed[@]}"
}

# The same, with the lowest priority beside the tests that follow, which wait most of the time. `beside_ends` shows the output.
beside_begins() { # name, arguments of cargo test...
    beside_name=$1 beside_began=$SECONDS
    set -m
    nice -n 19 cargo test --locked --workspace --no-fail-fast "${@:2}" "${timed[@]}" &>"$beside" &
    beside_pid=$!
    set +m
    printf '\n== %s: cargo test %s, with low priority beside the next steps\n' "$1" "${*:2}"
}

beside_ends() {
    local code=0
    printf '\n== %s: the output\n' "$beside_name"
    wait "$beside_pid" || code=$?
    beside_pid=
    cat "$beside"
    cat "$beside" >>"$log"
    if [[ $code == 0 ]]; then
        summary+=("$(printf '%-22s ok      %4d s beside others' "$beside_name" $((SECONDS - beside_began)))")
    else
        failed=$beside_name
        summary+=("$(printf '%-22s FAILED  %4d s beside others' "$beside_name" $((SECONDS - beside_began)))")
    fi
}

# The test harness reports the time of each test, a feature that stable toolchains refuse without this variable. Only the
# test programs get it: cargo would build dependencies again. A toolchain that has another option reports no times.
timed=()
report_times() {
    local runner
    runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z.-' 'A-Z__')_RUNNER
    [[ -z ${!runner:-} ]] || return 0
    export "$runner=env RUSTC_BOOTSTRAP=1"
    timed=(-- -Z unstable-options --report-time)
    cargo test --locked --workspace --lib "${timed[@]}" --list >/dev/null 2>&1 || timed=()
}

# A newer toolchain has other lints: its warnings are shown and do not fail the step.
pinned=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
deny=()
[[ $(rustc --version) != "rustc $pinned"* ]] || deny=(-- -D warnings)

skip() { # name, reason
    summary+=("$(printf '%-22s skipped: %s' "$1" "$2")")
}

# Real kubelets need more than other servers: a machine that cannot run them skips this part, and the summary says why.
real_nodes() {
    local name="real nodes" began=$SECONDS reason code
    hack/install-deps.sh node || true
    if ! reason=$(hack/node-possible.sh); then
        skip "$name" "$reason"
        return
    fi
    printf '\n== %s: hack/e2e.sh debug\n' "$name"
    hack/e2e.sh debug 2>&1 | tee -a "$log"
    code=${PIPESTATUS[0]}
    case $code in
        0) summary+=("$(printf '%-22s ok      %4d s' "$name" $((SECONDS - began)))") ;;
        # Nothing of this project has run yet.
        3) skip "$name" "$(tail -1 "$log" | sed 's/^error: this machine cannot run a Kubernetes node: //')" ;;
        *) failed=$name; summary+=("$(printf '%-22s FAILED  %4d s' "$name" $((SECONDS - began)))") ;;
    esac
}

component fmt format cargo fmt --all --check
component clippy lints cargo clippy --locked --workspace --all-targets "${deny[@]}"
step purity hack/check-purity.sh
# The fast loop installs nothing.
if [[ $what == all ]]; then hack/spelling.sh install || true; fi
if hack/spelling.sh available; then
    step spelling hack/spelling.sh
else
    skip spelling "typos is not installed (hack/spelling.sh install)"
fi
if hack/licences.sh available; then
    step licences hack/licences.sh
else
    skip licences "cargo-deny is not installed (make licences)"
fi
if command -v promtool >/dev/null; then
    step alerts hack/check-alerts.sh
else
    skip alerts "promtool is missing (Debian package prometheus)"
fi
if [[ $what == all ]]; then hack/dashboard.sh install || true; fi
if hack/dashboard.sh available; then
    step dashboard hack/dashboard.sh check
else
    skip dashboard "Grafana's foundation SDK is not installed (hack/dashboard.sh install)"
fi
if hack/instructions.sh available; then
    step instructions hack/instructions.sh
else
    skip instructions "valgrind is not installed (make deps)"
fi
if command -v python3 >/dev/null; then
    step "comparison page" python3 bench/report.py --check
    # The other crates still have circles.
    step "circles" hack/circles.py crates/{core,lock,locker,plan,run}/src src/
else
    skip "circles" "python3 is missing"
    skip "comparison page" "python3 is missing"
fi
step "chart's CRDs" hack/generate-chart.sh --check-crds
if [[ $what == fast ]]; then
    step "unit tests" cargo test --locked --workspace --lib --bins --no-fail-fast
    export MODEL=quick
    step "model and simulator" cargo test --locked --package redislease-core --package redislease-sim --no-fail-fast --test '*'
elif [[ -z $failed ]]; then
    export SIM_SEEDS=3000
    # Every step selects from the whole workspace: with fewer packages, dependencies would be built again with other
    # features. The tests on a control plane come last and on their own, because they wait most of the time: more of them
    # than there are cores can run at once. A process runs at most four control planes.
    # Those that only compute have the lowest priority: they use the time in which the others wait.
    computing=() others=()
    for file in crates/*/tests/*.rs crates/*/tests/*/main.rs tests/*/main.rs; do
        file=${file%/main.rs}
        file=${file##*/}
        case ${file%.rs} in
            kube | chart) ;;
            activation | model | sim) computing+=(--test "${file%.rs}") ;;
            *) others+=(--test "${file%.rs}") ;;
        esac
    done
    tests "unit tests" --lib --bins
    tests "documentation" --doc
    report_times
    step "build the tests" cargo test --locked --workspace --no-run --quiet --test '*'
    beside_begins "model and simulator" "${computing[@]}"
    tests "other tests" "${others[@]}"
    RUST_TEST_THREADS=5 tests "control plane" --test kube
    beside_ends
    run "a tenant's load" cargo test --locked --workspace --test kube "${timed[@]:---}" --ignored --exact \
        --nocapture tenants::a_tenant_with_thousands_of_leases_delays_no_renewal_of_another_tenant
    RUST_TEST_THREADS=4 tests "chart" --test chart
    real_nodes
fi

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
# The test binaries that took longest.
sed -nE 's/^ +Running (.*) \(.*/\1/p; s/^test result: .*finished in ([0-9.]+)s$/\1/p' "$log" |
    awk '/^[0-9.]+$/ { if (name != "" && $1 >= 5) printf "%7.1f s  %s\n", $1, name; name = ""; next } { name = $0 }' | sort -rn
# The tests that took longest.
sed -nE 's/^ +Running (.*) \(.*/\1/p; s/^test (.*) \.\.\. (ok|FAILED) <([0-9.]+)s>$/\3 \1/p' "$log" |
    awk '/^[0-9.]+ / { printf "%7.1f s  %s %s\n", $1, name, $2; next } { name = $0 }' | sort -rn | head -10
sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$log" |
    awk '{ passed += $1; failed += $2; ignored += $3 }
         END { printf "tests: %d passed, %d failed, %d not run by default\n", passed, failed, ignored }'
sed -nE 's/^test (.*) \.\.\. FAILED( <[0-9.]+s>)?$/failed: \1/p' "$log" | sort -u
printf '%d s in all\n' $((SECONDS - started))
[[ -z $failed ]]
