#!/usr/bin/env bash
# Builds the static release binary and prints its path. It contains no paths of this machine, so the same source and
# toolchain give the same bytes in any folder.
#
#   hack/static-binary.sh           for this machine's architecture
#   hack/static-binary.sh arm64     for another one: amd64 or arm64; needs its Rust target and a cross compiler for C
#
# RUSTC can name a compiler that has the target, such as Debian's with the package libstd-rust-dev:arm64.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-$(uname -m)} in
    amd64 | x86_64) target=x86_64-unknown-linux-gnu ;;
    arm64 | aarch64) target=aarch64-unknown-linux-gnu ;;
    *) echo "error: unknown architecture $1; say amd64 or arm64." >&2; exit 2 ;;
esac

# The cross compilers of Debian: gcc-aarch64-linux-gnu and gcc-x86-64-linux-gnu.
case $(uname -m)-$target in
    x86_64-aarch64-*) : "${CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER:=aarch64-linux-gnu-gcc}" ;;
    aarch64-x86_64-*) : "${CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER:=x86_64-linux-gnu-gcc}" ;;
esac
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER

# Static glibc resolves names by /etc/hosts and DNS without other files, from glibc 2.34 on.
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/glibc //') || true
if [[ $(printf '%s\n' 2.34 "${glibc:-0}" | sort -V | head -1) != 2.34 ]]; then
    echo "error: a static binary needs glibc 2.34 or newer to resolve names; here is ${glibc:-another C library}." >&2
    exit 1
fi
unset RUSTFLAGS CARGO_BUILD_TARGET
cargo_home=${CARGO_HOME:-${HOME:?}/.cargo}
export CARGO_PROFILE_RELEASE_STRIP=symbols
# Only for the target: build scripts and macros run on this machine.
export CARGO_ENCODED_RUSTFLAGS=-Ctarget-feature=+crt-static$'\x1f'--remap-path-prefix=$PWD=/source$'\x1f'--remap-path-prefix=$cargo_home=/cargo
cargo build --release --locked --package redislease --bin redislease --target "$target" >&2
realpath "${CARGO_TARGET_DIR:-target}/$target/release/redislease"
