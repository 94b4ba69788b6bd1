#!/usr/bin/env bash
# Prints the path of a Rust compiler that has the standard library of another target.
#
#   hack/rust-target.sh aarch64-unknown-linux-gnu
#
# That is RUSTC, or rustc in PATH, if it has the target, as after `rustup target add`. Otherwise this script builds the
# target's standard library once, in one minute of one core, and prints a small script that calls the same compiler with it. The
# source of the library belongs to the toolchain (`rustup component add rust-src`) or comes from Debian's package rust-src of
# exactly the same version. The result is kept in the user's cache folder.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

target=${1:-}
[[ $target == *-linux-gnu ]] || { say "error: say which target: hack/rust-target.sh aarch64-unknown-linux-gnu"; exit 2; }
rustc=$(command -v "${RUSTC:-rustc}") || die "Rust is missing: see hack/install-deps.sh."
sysroot=$("$rustc" --print sysroot)
has() { compgen -G "$1/lib/rustlib/$target/lib/libstd-*.rlib" >/dev/null; }
if has "$sysroot"; then
    echo "$rustc"
    exit 0
fi
# Rustup's commands select a toolchain by the current folder; these are the selected ones.
cargo=cargo
[[ ! -x $sysroot/bin/rustc ]] || rustc=$sysroot/bin/rustc
[[ ! -x $sysroot/bin/cargo ]] || cargo=$sysroot/bin/cargo
field() { "$rustc" -vV | sed -n "s/^$1: //p"; }
version=$(field release)
host=$(field host)
commit=$(field commit-hash)

# Increase this when a change of the build below changes the library.
recipe=1
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/rust-std
key=$({ echo "$recipe $target $sysroot"; "$rustc" -vV; } | sha256sum | cut -c1-16)
compiler=$cache/$target-$key/rustc
mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { say "waiting for another build of the standard library ..."; flock 9; }
if [[ -x $compiler ]]; then
    echo "$compiler"
    exit 0
fi
work=$cache/$target-$key.building
rm -rf "$work"
mkdir -p "$work/scratch"
trap 'rm -rf "$work"' EXIT

# Debian's package of exactly this version, of any Debian release. Prints the folder of its content.
from_debian() {
    local mirror keyring folder=$work/scratch/debian suite found
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -1)
    [[ -n $mirror ]] || { say "note: apt-get knows no mirror of Debian: run \`apt-get update\`."; return 1; }
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    # The smallest list first. This machine's own lists and packages stay as they are.
    for suite in stable-backports testing unstable; do
        mkdir -p "$folder/$suite/"{lists,cache}
        cat >"$folder/$suite/apt.conf" <<END
Dir::Etc::sourcelist "$folder/$suite/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/$suite/lists";
Dir::Cache "$folder/$suite/cache";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
END
        echo "deb $([[ ! -e $keyring ]] || echo "[signed-by=$keyring]") $mirror $suite main" >"$folder/$suite/sources.list"
        (
            export APT_CONFIG=$folder/$suite/apt.conf
            cd "$folder/$suite"
            apt-get update --quiet || exit 1
            found=$(apt-cache madison rust-src | awk '{ print $3 }' | grep -m1 "^${version//./\\.}[+~-]") || exit 1
            apt-get download --quiet "rust-src=$found" || exit 1
            mkdir "$folder/content"
            dpkg-deb --fsys-tarfile rust-src_*.deb | tar -x -C "$folder/content" "./usr/src/rustc-$version/library"
        ) >"$folder/$suite/log" 2>&1 || continue
        echo "$folder/content/usr/src/rustc-$version"
        return 0
    done
    say "note: apt-get finds no package rust-src of version $version in stable-backports, testing and unstable; its last lines:"
    tail -qn 2 "$folder"/*/log >&2
    return 1
}

started=$SECONDS
say "build the standard library of Rust $version for $target ..."
source=$sysroot/lib/rustlib/src/rust
if [[ ! -d $source/library/std ]]; then
    source=$(from_debian) || die "Rust $version has no standard library for $target: run \`rustup target add $target\`, or use a version of Rust whose source is a Debian package (rust-src)."
fi

# The compiler's own folder, with the source and with room for the target.
tree=$work/sysroot/lib/rustlib
mkdir -p "$tree/src"
ln -s "$sysroot/lib/rustlib/$host" "$tree/$host"
ln -s "$source" "$tree/src/rust"
compiler_script() { # further options -> a script that calls the compiler with this folder
    cat <<END
#!/bin/sh
# $("$rustc" --version), with a standard library for $target that hack/rust-target.sh has built.
exec "$rustc" --sysroot "\${0%/*}/sysroot" $*"\$@"
END
}
compiler_script >"$work/rustc"
# Cargo does not see these options: with them, its names would depend on the place.
renamed=
for path in "$work" "${tree#"$work"/}/src/rust" "$tree/src/rust" "$source"; do renamed+="--remap-path-prefix='$path=/rustc/$commit' "; done
compiler_script "$renamed" >"$work/rustc-library"
chmod 755 "$work"/rustc*

# Cargo builds the library for a package. This one is empty. Cargo's names of the library's packages depend on their place
# relative to this one, and not on the place of both: so this folder is the root of the sysroot too.
mkdir "$work/.cargo"
echo '#![no_std]' >"$work/scratch/lib.rs"
cat >"$work/Cargo.toml" <<'END'
[package]
name = "library"
version = "0.0.0"
edition = "2024"

[lib]
path = "scratch/lib.rs"

[workspace]

[profile.release]
panic = "unwind"
END
[[ ! -d $source/library/vendor ]] || cat >"$work/.cargo/config.toml" <<END
[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "$source/library/vendor"
END
log=$work/scratch/log
# Building the library is an unstable feature of Cargo. Only the library is built with it, by the compiler that it belongs to.
if ! (cd "$work" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_TARGET RUSTC_BOOTSTRAP=1 RUSTC="$work/rustc-library" \
    CARGO_TARGET_DIR="$work/scratch/target" "$cargo" build --release --target "$target" -Zbuild-std=std,panic_abort,proc_macro) >"$log" 2>&1; then
    tail -20 "$log" >&2
    die "cargo cannot build the standard library of Rust $version for $target; the lines above are its last."
fi
mkdir -p "$tree/$target/lib"
cp "$work/scratch/target/$target/release/deps/"lib*.rlib "$tree/$target/lib/"
rm -rf "$tree/$target/lib/"liblibrary-* "$tree/src" "$work"/{scratch,.cargo,rustc-library,Cargo.toml,Cargo.lock}
has "$work/sysroot" || die "cargo has built no standard library for $target."
rm -rf "${compiler%/*}"
mv "$work" "${compiler%/*}"
say "built the standard library in $((SECONDS - started)) s: ${compiler%/*}"
echo "$compiler"
