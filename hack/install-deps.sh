#!/usr/bin/env bash
# Checks the toolchains and installs what tests and the demo need from Debian: redis-server, promtool, Python, valgrind,
# PostgreSQL, curl and a C linker.
# Names everything that it cannot install before it changes anything. Takes no time if everything is installed.
#
#   hack/install-deps.sh        everything
#   hack/install-deps.sh rust   checks the dependencies of the fast loop, and installs nothing
#   hack/install-deps.sh image  the dependencies of the image: Rust, a C linker and buildah
#   hack/install-deps.sh image arm64   the same for another architecture, amd64 or arm64: also a cross compiler for C, its
#                               C library, and QEMU, which runs the binary
#   hack/install-deps.sh lab    the dependencies of the demo: Rust, Go, redis-server and a C linker
#   hack/install-deps.sh node   the dependencies of real Kubernetes nodes: Rust, Go, redis-server, a C linker, runc, iproute2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-all}
case $what in all | rust | image | lab | node) ;; *) echo "error: say rust, image, lab, node, or nothing" >&2; exit 2 ;; esac

say() { printf '%s\n' "$*" >&2; }
problems=()

check_version() { # name, needed, command, sed expression that takes the version out of its output, where to get it
    local have found
    if ! command -v "$3" >/dev/null; then
        problems+=("$1 is missing: $2 or newer is needed in PATH ($5).")
        return
    fi
    # From the root folder: a go.mod or rust-toolchain.toml nearby could answer with an error or start a download.
    found=$(cd / && GOTOOLCHAIN=local "$3" "${@:6}" 2>&1 | head -1) || true
    have=$(sed -n "$4" <<<"$found")
    if [[ -z $have ]]; then
        problems+=("$1 does not work: $(command -v "$3") says \"$found\"; $2 or newer is needed ($5).")
    elif [[ $(printf '%s\n' "$2" "$have" | sort -V | head -1) != "$2" ]]; then
        problems+=("$1 $have at $(command -v "$3") is too old: $2 or newer is needed ($5).")
    fi
}

rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -1)
check_version Rust "$rust" rustc 's/^rustc \([0-9.]*\).*/\1/p' https://rustup.rs --version
check_version Cargo "$rust" cargo 's/^cargo \([0-9.]*\).*/\1/p' https://rustup.rs --version
if [[ $what == rust ]]; then
    command -v cc >/dev/null || problems+=("A C linker is missing (cc): run \`make deps\`, or install gcc and libc6-dev.")
    for problem in "${problems[@]}"; do say "error: $problem"; done
    exit $((${#problems[@]} > 0))
fi
packages=()
if [[ $what == image ]]; then
    command -v buildah >/dev/null || packages+=(buildah)
    case $(uname -m)-${2:-} in
        x86_64-arm64) cross=(aarch64 arm64) ;;
        aarch64-amd64) cross=(x86_64 amd64) ;;
        *) cross=() ;;
    esac
    if ((${#cross[@]})); then
        command -v "${cross[0]}-linux-gnu-gcc" >/dev/null && [[ -e /usr/${cross[0]}-linux-gnu/lib/libc.a ]] ||
            packages+=("gcc-${cross[0]//_/-}-linux-gnu" "libc6-dev-${cross[1]}-cross")
        command -v "qemu-${cross[0]}-static" "qemu-${cross[0]}" >/dev/null || packages+=(qemu-user-static)
    fi
else
    go=$(sed -n 's/^go //p' hack/tools/*/go.mod | sort -V | tail -1)
    check_version Go "$go" go 's/^go version go\([0-9.]*\).*/\1/p' https://go.dev/dl version

    if [[ -n ${REDIS_SERVER:-} ]]; then
        command -v "$REDIS_SERVER" >/dev/null || problems+=("REDIS_SERVER=$REDIS_SERVER cannot be run: name a redis-server or valkey-server, or unset it.")
    elif command -v redis-server >/dev/null; then
        check_version redis-server 7.0 redis-server 's/.*v=\([0-9.]*\).*/\1/p' "apt-get install redis-server, or REDIS_SERVER=PATH" --version
    else
        packages+=(redis-server)
    fi
    if [[ $what == node ]]; then
        command -v runc >/dev/null || packages+=(runc)
        command -v ip >/dev/null || packages+=(iproute2)
    elif [[ $what == all ]]; then
        command -v promtool >/dev/null || packages+=(prometheus)
        # A test runs the readers in examples/.
        command -v python3 >/dev/null || packages+=(python3)
        # A test of the library writes to a table with a fencing token.
        compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
        # Another one writes to an object store.
        command -v curl >/dev/null || packages+=(curl)
        # Tests of `redislease run` start it in a container.
        command -v runc >/dev/null || packages+=(runc)
        # hack/instructions.sh counts instructions.
        command -v valgrind >/dev/null || packages+=(valgrind)
    fi
fi
command -v cc >/dev/null || packages+=(gcc libc6-dev)
if ((${#packages[@]})); then
    if ! command -v apt-get >/dev/null; then
        problems+=("These Debian packages are missing and there is no apt-get here: ${packages[*]}; install their like with your system's package manager.")
    elif ((EUID != 0)); then
        problems+=("These Debian packages are missing and installing them needs root: run \`sudo apt-get install ${packages[*]}\`, or this as root.")
    fi
fi

if ((${#problems[@]})); then
    for problem in "${problems[@]}"; do say "error: $problem"; done
    exit 1
fi
((${#packages[@]})) || exit 0

say "install ${packages[*]} ..."
started=$SECONDS
# A second, concurrent call finds the work done.
exec 9>/run/lock/redislease-install.lock 2>/dev/null || exec 9>"${TMPDIR:-/tmp}/redislease-install.lock"
flock 9
log=$(mktemp)
cleanup=(rm -f "$log")
trap '"${cleanup[@]}"' EXIT
# The packages of redis-server, prometheus and postgresql start a server on their usual port. Nobody asked for one: this file is how
# Debian is told.
policy=/usr/sbin/policy-rc.d
ours='#!/bin/sh
# Left behind by an interrupted installation of RedisLease: remove it.
exit 101'
if [[ ! -e $policy || $(<"$policy") == "$ours" ]]; then
    cleanup+=("$policy")
    printf '%s\n' "$ours" >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
wait=(-o DPkg::Lock::Timeout=300)
install=(apt-get "${wait[@]}" install --yes --no-install-recommends "${packages[@]}")
# The lists of a fresh machine are empty; where they are not, a source that is down stops nothing.
if ! { "${install[@]}" || { apt-get "${wait[@]}" update && "${install[@]}"; }; } >"$log" 2>&1; then
    tail -15 "$log" >&2
    say "error: apt-get could not install ${packages[*]}; the lines above are its last."
    exit 1
fi
# Not at the next boot either.
for server in redis-server prometheus postgresql; do
    if [[ " ${packages[*]} " == *" $server "* ]] && command -v systemctl >/dev/null; then
        systemctl disable "$server" >/dev/null 2>&1 || true
    fi
done
say "installed ${packages[*]} in $((SECONDS - started)) s"
