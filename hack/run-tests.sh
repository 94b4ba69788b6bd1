#!/usr/bin/env bash
# Runs the checks and tests step by step, with a summary at the end.
#
#   hack/run-tests.sh fast   checks that need no server: format, lints, purity, unit tests, model and simulator. A step whose files
#                            are the same as when it last passed is left out
#   hack/run-tests.sh all    every step, also the tests on real Redis servers and a real control plane
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-}
case $what in fast | all) ;; *) echo "error: say fast or all" >&2; exit 2 ;; esac

# Variables that select a seed, or keep servers running, must not change what is tested.
unset KEEP MODEL REDISLEASE_TEST_CASE REDISLEASE_TEST_LEASES REDISLEASE_TEST_LOSSES REDISLEASE_TEST_ROUNDS REDISLEASE_TEST_SEED
for variable in "${!SIM_@}"; do unset "$variable"; done
# The simulator runs fixed seeds, and some that each commit draws anew.
if commit=$(git rev-parse --short=7 HEAD 2>/dev/null); then
    export SIM_FRESH=$((16#${commit:0:7}))
    echo "first fresh seed of the simulator: SIM_FRESH=$SIM_FRESH (from commit $commit)"
fi

log=$(mktemp)
# Steps that run beside others: their process groups and when they began. Each writes its output to a file.
beside=$(mktemp -d)
declare -A beside_pid beside_began
trap 'for pid in "${beside_pid[@]}"; do kill -- "-$pid" 2>/dev/null; done; rm -rf "$log" "$beside"' EXIT
summary=()
# The step that failed last, and a line for each that failed, with the last lines of one that ran beside others.
failed= failures=()
started=$SECONDS began_at=$(($(date +%s) - SECONDS))

# Runs a command, and writes the processor time of it and what it has waited for into a file.
measured() { # name, command...
    ("${@:2}"; code=$?; times >"$beside/$1.times"; exit "$code")
}

# Adds a line to the summary.
ended() { # name, result, seconds, more
    local used
    used=$(awk 'NR == 2 { split($1 "m" $2, time, "[ms]+"); printf "%d", 60 * (time[1] + time[3]) + time[2] + time[4] }' "$beside/$1.times")
    summary+=("$(printf '%-22s %-6s  %4d s, %4d s of processor time%s' "$1" "$2" "$3" "$used" "${4:-}")")
}

run() { # name, command...
    local name=$1 began=$SECONDS result=ok
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    measured "$name" "$@" 2>&1 | tee -a "$log" || { result=FAILED; failed=$name; failures+=("$name"); }
    ended "$name" "$result" $((SECONDS - began))
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
    run "$1" cargo test --locked --workspace --no-fail-fast "${@:2}"
}

# Starts a step beside those that follow: most of the tests wait most of the time. `beside_ends` shows its output.
beside_begins() { # name, command...
    printf '\n== %s, beside the next steps: %s\n' "$1" "${*:2}"
    beside_began[$1]=$SECONDS
    set -m
    measured "$@" &>"$beside/$1" &
    beside_pid[$1]=$!
    set +m
}

beside_ends() { # name
    local code=0 took result=ok
    wait "${beside_pid[$1]}" || code=$?
    unset "beside_pid[$1]"
    # When it has ended, not when somebody looked.
    took=$(($(stat --format=%Y "$beside/$1") - began_at - beside_began[$1]))
    printf '\n== %s: the output\n' "$1"
    tee -a "$log" <"$beside/$1"
    if ((code)); then
        result=FAILED failed=$1
        failures+=("$1 (exit code $code; its last lines:)" "$(tail -12 "$beside/$1")")
    fi
    ended "$1" "$result" "$took" " beside others"
    return "$code"
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

# Real kubelets need more than other servers: a machine that cannot run them skips this part, and the summary says why. Beside other tests
# on two cores, the API server and the Redis servers did not answer for seconds.
real_nodes() {
    local reason code began=$SECONDS
    hack/install-deps.sh node || true
    if ! reason=$(hack/node-possible.sh); then
        skip "real nodes" "$reason"
        return
    fi
    printf '\n== real nodes: hack/e2e.sh debug\n'
    measured "real nodes" hack/e2e.sh debug 2>&1 | tee -a "$log"
    code=${PIPESTATUS[0]}
    case $code in
        0) ended "real nodes" ok $((SECONDS - began)) ;;
        # Nothing of this project has run yet.
        3) skip "real nodes" "$(tail -1 "$log" | sed 's/^error: this machine cannot run a Kubernetes node: //')" ;;
        *)
            failed="real nodes"
            failures+=("real nodes")
            ended "real nodes" FAILED $((SECONDS - began))
            ;;
    esac
}

# A step of `make check` is left out when its files are the same as when it last passed: `make test` runs all.
step_of() { # name, files..., --, command...
    local name=$1 files=() now stamp
    shift
    while [[ $1 != -- ]]; do files+=("$1"); shift; done
    shift
    stamp=${CARGO_TARGET_DIR:-target}/checked/$name
    # Without git, or with a file that cannot be read, nothing is left out.
    now=$({ rustc -V && git ls-files -z --cached --others --exclude-standard -- "${files[@]}" Cargo.toml Cargo.lock |
        xargs --null sha256sum; } 2>/dev/null | sha256sum) || now=
    if [[ $what == fast && -n $now && -r $stamp && $(<"$stamp") == "$now" ]]; then
        skip "$name" "its files are as when it last passed"
        return
    fi
    step "$name" "$@"
    if [[ -z $failed && -n $now ]]; then
        mkdir -p "${stamp%/*}"
        printf '%s\n' "$now" >"$stamp"
    fi
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
    step_of alerts charts/redislease/files/alerts.yaml tests/alerts hack/check-alerts.sh -- hack/check-alerts.sh
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
    step_of instructions crates/core hack/instructions.sh -- hack/instructions.sh
else
    skip instructions "valgrind is not installed (make deps)"
fi
if command -v python3 >/dev/null; then
    step "comparison page" python3 bench/report.py --check
    step "circles" hack/circles.py
    step "length" hack/length.py
else
    skip "circles" "python3 is missing"
    skip "length" "python3 is missing"
    skip "comparison page" "python3 is missing"
fi
step "chart's CRDs" hack/generate-chart.sh --check-crds
if [[ $what == fast ]]; then
    step "unit tests" cargo test --locked --workspace --lib --no-fail-fast
    export MODEL=quick SIM_SEEDS=150 SIM_PROGRAMS=150
    step_of "model and simulator" crates/core crates/plan crates/sim -- \
        cargo test --locked --workspace --no-fail-fast --test model --test activation --test sim -- --skip fresh_seeds \
        --skip planted_bugs_are_found --skip bugs_in_the_lock_of_a_program_are_found --skip scenario::crash_points
elif [[ -z $failed ]]; then
    export SIM_SEEDS=1000
    # Every step selects from the whole workspace: with fewer packages, dependencies would be built again with other
    # features. Tests that only compute have the lowest priority: they use the time in which the others wait. The others
    # wait most of the time, so more of them run at once than there are cores.
    computing=() lab=() others=()
    for file in crates/*/tests/*.rs crates/*/tests/*/main.rs tests/*/main.rs; do
        file=${file%/main.rs}
        file=${file##*/}
        case ${file%.rs} in
            kube | chart) ;;
            activation | model | sim) computing+=(--test "${file%.rs}") ;;
            orphans | suspend) lab+=(--test "${file%.rs}") ;;
            *) others+=(--test "${file%.rs}") ;;
        esac
    done
    # These measure times of less than a second. They run when few others do.
    timing=(keeper::acquire keeper::latency keeper::lifetime keeper::returns keeper::shards
        cancel:: guards:: hold:: many:: peers:: requests:: idle:: losses:: suspend::)
    tests "unit tests" --lib --bins
    tests "documentation" --doc
    step "library's pages" env RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --no-deps --package redislease-locker
    report_times
    step "build the tests" cargo test --locked --workspace --no-run --quiet --test '*'
    cargo=(cargo test --locked --workspace --no-fail-fast)
    timed=("${timed[@]:---}")
    beside_begins "model and simulator" nice -n 19 "${cargo[@]}" "${computing[@]}" "${timed[@]}"
    RUST_TEST_THREADS=3 tests "timing" "${others[@]}" "${timed[@]}" "${timing[@]}"
    real_nodes
    beside_begins "chart" env RUST_TEST_THREADS=4 "${cargo[@]}" --test chart "${timed[@]}"
    # Each binary of the lab waits for servers of its own, one test after the other.
    beside_begins "lab" "${cargo[@]}" "${lab[@]}" "${timed[@]}"
    RUST_TEST_THREADS=8 tests "other tests" "${others[@]}" "${timed[@]}" "${timing[@]/#/--skip=}"
    beside_ends "lab"
    beside_ends "chart"
    # A workspace of its own, which uses the lock layer and the library.
    beside_begins "comparison program" nice -n 19 cargo check --locked --quiet \
        --manifest-path bench/peers/rust/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/bench-peers"
    RUST_TEST_THREADS=9 tests "control plane" --test kube "${timed[@]}"
    beside_ends "comparison program"
    beside_ends "model and simulator"
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
# Tests that did less than they can, and why.
grep -hoE 'skipped: .*' "$log" | sort -u
# The tests that failed, and how each of them did.
awk -v most=12 '
    match($0, /^test .* \.\.\. FAILED/) { name = $0; sub(/^test /, "", name); sub(/ \.\.\. FAILED.*/, "", name); names[name] }
    /^---- .* stdout ----$/ { shown = $2; lines[shown] = 0; next }
    /^(failures:|stack backtrace:|test result:)/ { shown = "" }
    shown != "" && NF && lines[shown] < most { text[shown] = text[shown] "    " substr($0, 1, 600) "\n"; lines[shown]++ }
    END { for (name in names) printf "failed: %s\n%s", name, text[name] }' "$log"
printf '%d s in all\n' $((SECONDS - started))
# Last: a log that is cut keeps its end.
if [[ -n $failed ]]; then printf 'failed step: %s\n' "${failures[@]}"; fi
[[ -z $failed ]]
