#!/usr/bin/env bash
# Runs what is too long for a commit, and writes one page about it. A part that fails does not stop the others.
#
#   hack/nightly.sh [PART...]    model simulator programs replicas workloads planes losses idle scale observe mutants bench; all of them if none is named
#
# Variables: SIM_HOURS (2) for the random search, half of it for operators and half for programs, ROUNDS (10) of each fault of the
# replicas, LOSSES (200) in each way, N (10000) leases. The page is target/nightly/page.md.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(model simulator programs replicas workloads planes losses idle scale observe mutants bench)
parts=("${@:-${all[@]}}")
for part in "${parts[@]}"; do
    [[ " ${all[*]} " == *" $part "* ]] || { echo "error: $part is none of: ${all[*]}" >&2; exit 2; }
done
hours=${SIM_HOURS:-2}
half=$(awk -v hours="$hours" 'BEGIN { if (hours !~ /^[0-9.]+$/) exit 1; print int(hours * 1800) }') ||
    { echo "error: SIM_HOURS=$hours is no number of hours" >&2; exit 2; }
unset SIM_HOURS KEEP MODEL
for variable in "${!SIM_@}"; do unset "$variable"; done

logs=target/nightly
mkdir -p "$logs"
page=$logs/page.md
commit=$(git rev-parse --short=7 HEAD)
# Each night tries other seeds, far from those of the commits.
first=$((1000000000 + $(date +%s)))
failed=0

# The lines of a log that say what was found.
found() { # part
    case $1 in
        model) grep -E '^test result|transitions|states' ;;
        simulator) grep -E '^[0-9]+ seeds from|^seed |^of their bounds|never seen' ;;
        programs) grep -E '^[0-9]+ seeds of programs|^seed ' ;;
        replicas | workloads | planes | losses)
            grep -E '^test .*(ok|FAILED)|^test result|leases moved|leases held|workloads|p50'
            ;;
        idle) grep -E '^test result|private memory' ;;
        scale) grep -E '^goal:' ;;
        observe) grep -E '^problem|every query has data|^NOT MET' ;;
        mutants) grep -E 'not noticed|mutants tested|: replace |: delete ' ;;
        bench) grep -E '^\| .*(met|missed) \|$' ;;
    esac
}

run() { # part, command...
    local part=$1 began=$SECONDS result=ok
    shift
    printf '\n== %s: %s\n' "$part" "$*"
    "$@" 2>&1 | tee "$logs/$part.log" || { result=FAILED; failed=1; }
    {
        printf '\n## %s: %s, %d s\n\n```text\n' "$part" "$result" $((SECONDS - began))
        found "$part" <"$logs/$part.log" | cut -c1-200 | tail -40
        printf '```\n'
    } >>"$page"
}

model() { make --no-print-directory model; }
simulator() { SIM_FIRST=$first SIM_SECONDS=$half cargo test --locked --package redislease-sim --test sim -- batch --nocapture; }
programs() { SIM_FIRST=$first SIM_SECONDS=$half cargo test --locked --package redislease-sim --test sim -- programs_keep --nocapture; }
kube() { cargo test --locked --workspace --test kube -- "$@" --nocapture; }
replicas() { REDISLEASE_TEST_ROUNDS=${ROUNDS:-10} kube replicas:: lost_time:: --include-ignored; }
workloads() { kube many_workloads:: refuses_a_thousand --ignored; }
# The other tests on control planes that `make test` leaves out. The noisy tenant runs alone: it slows down the tests beside it.
planes() {
    local code=0
    kube --ignored --skip replicas:: --skip many_workloads:: --skip refuses_a_thousand || code=1
    REDISLEASE_TEST_LEASES=2000 kube tenants::a_tenant_with || code=1
    return "$code"
}
losses() { make --no-print-directory run-losses LOSSES="${LOSSES:-200}"; }
idle() { make --no-print-directory run-idle; }
scale() { N=${N:-10000} make --no-print-directory scale; }
observe() { make --no-print-directory observe; }
mutants() { hack/mutants.sh changed; }
bench() { make --no-print-directory bench; }

{
    printf '# Nightly run of commit %s%s, %s\n\n' "$commit" "$([[ -z $(git status --porcelain) ]] || echo ' with changes')" "$(date -u +%F)"
    printf '%s cores (%s), %s, Linux %s.\n' "$(nproc)" "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" \
        "$(awk '/MemTotal/ { printf "%d GB", $2 / 1048576 + 0.5 }' /proc/meminfo)" "$(uname -r)"
} >"$page"
for part in "${parts[@]}"; do run "$part" "$part"; done
printf '\n'
cat "$page"
exit "$failed"
