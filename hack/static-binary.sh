#!/usr/bin/env bash
# Builds the static release binary and prints its path. It contains no paths of this machine, so the same source and
# toolchain give the same bytes in any folder.
#
#   hack/static-binary.sh           for this machine's architecture
#   hack/static-binary.sh arm64     for another one: amd64 or arm64; needs a cross compiler for C, see hack/install-deps.sh
#
# Without the Rust target, hack/rust-target.sh builds its standard library. RUSTC can name a compiler that has the target, such
# as Debian's with the package libstd-rust-dev:arm64.
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

linker=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")_LINKER
linker=${!linker:-cc}
command -v "$linker" >/dev/null || { echo "error: the C compiler $linker is missing: run \`hack/install-deps.sh image ${1:-}\`." >&2; exit 1; }

# Static glibc resolves names by /etc/hosts and DNS without other files, from glibc 2.34 on.
glibc=$("$linker" -E -P -x c - <<<$'#include <features.h>\n__GLIBC__.__GLIBC_MINOR__' 2>/dev/null | tail -1 | tr -d ' ') || true
if [[ ! $glibc =~ ^[0-9.]+$ || $(printf '%s\n' 2.34 "$glibc" | sort -V | head -1) != 2.34 ]]; then
    [[ $glibc =~ ^[0-9.]+$ ]] || glibc="another C library, or none"
    echo "error: a static binary needs glibc 2.34 or newer to resolve names; $linker has $glibc." >&2
    exit 1
fi
compiler=$(hack/rust-target.sh "$target")
# Cargo would build everything again for another path of the same compiler.
[[ $compiler == "$(command -v "${RUSTC:-rustc}")" ]] || export RUSTC=$compiler
unset RUSTFLAGS CARGO_BUILD_TARGET
cargo_home=${CARGO_HOME:-${HOME:?}/.cargo}
export CARGO_PROFILE_RELEASE_STRIP=symbols
# The allocator is built for one page size: arm64 has kernels with pages of 4, 16 and 64 KiB.
[[ $target != aarch64-* ]] || export JEMALLOC_SYS_WITH_LG_PAGE=16
# Only for the target: build scripts and macros run on this machine. Generated code is in the target folder; of two prefixes that
# match, the last one counts.
export CARGO_ENCODED_RUSTFLAGS=-Ctarget-feature=+crt-static
for path in "$cargo_home=/cargo" "$PWD=/source" "$(realpath -m "${CARGO_TARGET_DIR:-target}")=/source/target"; do
    CARGO_ENCODED_RUSTFLAGS+=$'\x1f'--remap-path-prefix=$path
done
cargo build --release --locked --package redislease --bin redislease --target "$target" >&2
realpath "${CARGO_TARGET_DIR:-target}/$target/release/redislease"
