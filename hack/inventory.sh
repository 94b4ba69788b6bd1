#!/usr/bin/env bash
# Writes what the binary contains: a software bill of materials in CycloneDX format, and the licences of all dependencies with
# their texts. Both come from Cargo.lock and from the sources that cargo has fetched. The same lock file gives the same bytes.
#
#   hack/inventory.sh FOLDER [ARCH]   writes FOLDER/redislease.cdx.json and FOLDER/THIRD-PARTY.txt; ARCH is amd64 or arm64
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-}
[[ -n $folder ]] || { echo "error: say where to write: hack/inventory.sh FOLDER [ARCH]" >&2; exit 2; }
case ${2:-$(uname -m)} in
    amd64 | x86_64) target=x86_64-unknown-linux-gnu ;;
    arm64 | aarch64) target=aarch64-unknown-linux-gnu ;;
    *) echo "error: unknown architecture $2; say amd64 or arm64." >&2; exit 2 ;;
esac
mkdir -p "$folder"
sbom=$folder/redislease.cdx.json
texts=$folder/THIRD-PARTY.txt
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
sources=${CARGO_HOME:-${HOME:?}/.cargo}/registry/src

cargo fetch --locked --target "$target" --quiet
# Macros and build scripts run while building; they are not in the binary. Our own packages have a path in their line.
dependencies=$(cargo tree --locked --package redislease --target "$target" --edges normal,no-proc-macro --prefix none \
    --format '{p}|{l}|{r}' --no-dedupe | grep -v '^redislease\(-core\|-lock\)\? ' | sed 's/ (\*)//' | sort -u)
[[ $(wc -l <<<"$dependencies") -gt 50 ]] || { echo "error: cargo tree lists only a few dependencies." >&2; exit 1; }

checksum() { # name, version
    awk -v name="$1" -v version="$2" '
        $1 == "name" { n = $3 } $1 == "version" { v = $3 }
        $1 == "checksum" && n == "\"" name "\"" && v == "\"" version "\"" { gsub(/"/, "", $3); print $3 }' Cargo.lock
}

{
    cat <<END
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {
      "type": "application",
      "bom-ref": "pkg:cargo/redislease@$version",
      "name": "redislease",
      "version": "$version",
      "purl": "pkg:cargo/redislease@$version",
      "licenses": [{"expression": "Apache-2.0"}]
    }
  },
  "components": [
END
    separator=
    while IFS='|' read -r package licence repository; do
        read -r name release _ <<<"$package"
        release=${release#v}
        # Older packages separate alternatives with a slash.
        licence=$(sed 's| */ *| OR |g' <<<"$licence")
        sum=$(checksum "$name" "$release")
        [[ -n $licence && -n $sum ]] || { echo "error: $name $release has no licence or no checksum." >&2; exit 1; }
        printf '%s' "$separator"
        printf '    {"type": "library", "bom-ref": "pkg:cargo/%s@%s", "name": "%s", "version": "%s", "purl": "pkg:cargo/%s@%s",\n' \
            "$name" "$release" "$name" "$release" "$name" "$release"
        printf '     "licenses": [{"expression": "%s"}], "hashes": [{"alg": "SHA-256", "content": "%s"}]' "$licence" "$sum"
        [[ -z $repository ]] || printf ',\n     "externalReferences": [{"type": "vcs", "url": "%s"}]' "$repository"
        printf '}'
        separator=$',\n'
    done <<<"$dependencies"
    printf '\n  ]\n}\n'
} >"$sbom"

without=()
{
    echo "RedisLease $version contains these libraries. Behind each stand its licence and the texts that its package contains."
    while IFS='|' read -r package licence repository; do
        read -r name release _ <<<"$package"
        printf '\n%s\n%s %s, %s, %s\n' "$(printf '=%.0s' {1..100})" "$name" "${release#v}" "$licence" "$repository"
        found=
        for file in "$sources"/*/"$name-${release#v}"/{LICENSE,LICENCE,COPYING,NOTICE,COPYRIGHT,UNLICENSE,jemalloc/COPYING}*; do
            [[ -f $file ]] || continue
            found=yes
            printf '\n--- %s\n\n' "${file##*/}"
            cat "$file"
        done
        [[ -n $found ]] || without+=("$name")
    done <<<"$dependencies"
} >"$texts"
printf 'inventory  %s libraries: %s, %s\n' "$(wc -l <<<"$dependencies")" "$sbom" "$texts"
[[ ${#without[@]} == 0 ]] || printf '           without a text in their package: %s\n' "${without[*]}"
