#!/usr/bin/env bash
# Packs the operator into an image: one static binary, nothing else. Needs buildah and no registry.
#
#   hack/image.sh                         build the binary for this architecture, pack it, check and measure the image
#   hack/image.sh --arch arm64            the same for another architecture; QEMU's user emulation runs the image, and no time is
#                                         measured, because emulation takes most of it
#   hack/image.sh --binary FILE           pack this static binary instead
#   hack/image.sh --twice yes             build the binary a second time in another folder, target/twice, and compare. The first
#                                         time this takes 25 minutes of one core, later as long as the first build
#   hack/image.sh --output FILE           where the OCI archive is written (target/image/redislease-ARCH.tar); the SBOM and the
#                                         licences of the dependencies are written beside it
#
# The same binary always gives the same image: the script packs twice and compares the digests.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

case $(uname -m) in x86_64) here=amd64 ;; aarch64) here=arm64 ;; *) here=$(uname -m) ;; esac
arch=$here binary= output= twice=
while (($#)); do
    [[ $# -gt 1 ]] || die "$1 needs a value, or is unknown."
    case $1 in
        --arch) arch=$2 ;;
        --binary) binary=$2 ;;
        --output) output=$2 ;;
        --twice) twice=$2 ;;
        *) die "unknown argument $1; say --arch, --binary, --twice or --output." ;;
    esac
    shift 2
done
command -v buildah >/dev/null || die "buildah is missing: run \`apt-get install buildah\`."
command -v readelf >/dev/null || die "readelf is missing: run \`apt-get install binutils\`."

if [[ -z $binary ]]; then
    binary=$("$root/hack/static-binary.sh" "$arch")
fi
case $(od -An -tx1 -j18 -N2 "$binary" | tr -d ' ') in
    3e00) is=amd64 ;;
    b700) is=arm64 ;;
    *) is="another architecture" ;;
esac
[[ $is == "$arch" ]] || die "$binary is for $is, not for $arch."
# A dynamic binary names an interpreter and libraries, which do not exist in an empty root file system.
headers=$(LC_ALL=C readelf --wide --program-headers --dynamic "$binary")
! grep -qE '^ *INTERP |\(NEEDED\)' <<<"$headers" || die "$binary is not static; build it with hack/static-binary.sh."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -n $twice ]]; then
    # The dependencies that were built there stay.
    copy=$root/target/twice
    mkdir -p "$copy"
    find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
    (cd "$root" && git ls-files -z --cached --others --exclude-standard | tar -c --null -T -) | tar -x -C "$copy"
    again=$(env -u CARGO_TARGET_DIR "$copy/hack/static-binary.sh" "$arch")
    cmp "$binary" "$again" || die "another folder gives another binary."
    echo 'binary   built twice, in two folders: the same bytes'
fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
output=${output:-$root/target/image/redislease-$arch.tar}
mkdir -p "$(dirname "$output")"
# With --binary, cargo may be missing.
if command -v cargo >/dev/null; then
    "$root/hack/inventory.sh" "$(dirname "$output")" "$arch"
fi
# vfs and chroot work everywhere, also in a container; nothing runs during the build.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
storage=(--root "$scratch/storage" --runroot "$scratch/run")

pack() { # OCI archive
    local context=$scratch/context
    rm -rf "$context"
    mkdir "$context"
    install -m 755 "$binary" "$context/redislease"
    buildah "${storage[@]}" build --quiet --no-cache --squash --identity-label=false --timestamp 0 --format oci --target packed \
        --arch "$arch" --build-arg "VERSION=$version" --file "$root/Dockerfile" --tag "redislease:$version" "$context" >/dev/null
    rm -f "$1"
    buildah "${storage[@]}" push --quiet "redislease:$version" "oci-archive:$1:redislease:$version"
}

digest() { # OCI archive -> digest of the manifest
    tar -xOf "$1" index.json | sed -n 's/.*"digest": *"\(sha256:[0-9a-f]*\)".*/\1/p'
}

pack "$output"
pack "$scratch/again.tar"
first=$(digest "$output")
second=$(digest "$scratch/again.tar")
[[ -n $first && $first == "$second" ]] || die "the same binary gave two images: $first and $second."
printf 'image    %s\n' "$output"
printf 'digest   %s (packed twice, the same)\n' "$first"
printf 'size     %d KiB binary, %d KiB compressed image\n' \
    $(($(stat -c %s "$binary") / 1024)) $(($(stat -c %s "$output") / 1024))

# What runs below is the image itself: its layers, read-only, as its user.
blob() { tar -xOf "$output" "blobs/sha256/${1#sha256:}"; }
# The configuration's digest comes first, the layers' follow.
mapfile -t digests < <(blob "$first" | grep -o '"digest":"sha256:[0-9a-f]*' | cut -d'"' -f4)
config=$(blob "${digests[0]}")
for wanted in '"User":"65532:65532"' '"_RJEM_MALLOC_CONF=narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0"' '"Entrypoint":["/redislease"]' '"Cmd":["operator"]' "\"architecture\":\"$arch\""; do
    [[ $config == *"$wanted"* ]] || die "the image's configuration lacks $wanted: $config"
done
rootfs=$scratch/rootfs
mkdir "$rootfs"
for layer in "${digests[@]:1}"; do blob "$layer" | tar -xz -C "$rootfs"; done
files=$(cd "$rootfs" && find . -mindepth 1)
[[ $files == ./redislease ]] || die "the image has other files than /redislease: $files"
printf 'content  /redislease, user 65532:65532, %s\n' "$arch"
emulator=()
if [[ $arch != "$here" ]]; then
    case $arch in amd64) cpu=x86_64 ;; arm64) cpu=aarch64 ;; esac
    qemu=$(command -v "qemu-$cpu-static" || command -v "qemu-$cpu") ||
        { say "note: qemu-$cpu-static is missing (Debian package qemu-user-static); the binary is not run."; exit 0; }
    said=$("$qemu" "$rootfs/redislease" --version)
    [[ $said == "redislease $version" ]] || die "the image says \"$said\" instead of its version."
    # The emulator must be in the root file system in which it runs the binary.
    ((EUID == 0)) && [[ $qemu == *-static ]] || { printf 'start    --version answers in emulation\n'; exit 0; }
    cp "$qemu" "$rootfs/emulator"
    emulator=(/emulator)
fi
((EUID == 0)) || { say "note: only root can run the image in a read-only root file system; its start time is not measured."; exit 0; }

# What the kubelet mounts into the container. The API server's port is closed. The certificate belongs to no server.
account=$rootfs/var/run/secrets/kubernetes.io/serviceaccount
install -d "$rootfs/etc" "$account"
echo '127.0.0.1 api.example.com' >"$rootfs/etc/hosts"
printf token >"$account/token"
printf redislease-system >"$account/namespace"
cat >"$account/ca.crt" <<'PEM'
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUJipFL7z+4QWsq+xk28+1U5+pIVcwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjIwMjM4MDdaGA8yMTI2MTAyOTAyMzgw
N1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAx0
qIY5oMUyYkpyhXS61bx5Q3tC8EUdDTdpd0aFmaciD70eilXdX9E01FuhtgDZvzKP
fX5kUrsvnnWJnXhFkF+jUzBRMB0GA1UdDgQWBBTz4mQuPbmv7+cFLnC2wWf4iq1a
8zAfBgNVHSMEGDAWgBTz4mQuPbmv7+cFLnC2wWf4iq1a8zAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIDE6aTG8ji6Q5np6KBUUck42686Lv3KpUfMI
ff/2ezX8AiEA5q+OgbNsEubmxuiXatnrgJjKVCWfB4IbWjtGkCUCxsE=
-----END CERTIFICATE-----
PEM
# Replaces this shell by a command in the image, in mount and network namespaces of its own.
container() {
    exec unshare --mount --net bash -c '
        ip link set lo up 2>/dev/null || true
        mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"
        ! touch "$1/writable" 2>/dev/null || { echo "error: the root file system is writable" >&2; exit 1; }
        exec env -i KUBERNETES_SERVICE_HOST=api.example.com KUBERNETES_SERVICE_PORT=1 "$(command -v chroot)" --userspec=65532:65532 "$1" "${@:2}"' bash "$rootfs" ${emulator[@]+"${emulator[@]}"} "$@"
}
said=$(container /redislease --version)
[[ $said == "redislease $version" ]] || die "the image says \"$said\" instead of its version."

milliseconds() { echo $((($(date +%s%N) - $1) / 1000000)); }
if ((!${#emulator[@]})); then
    began=$(date +%s%N)
    for _ in 1 2 3 4 5 6 7 8 9 10; do chroot --userspec=65532:65532 "$rootfs" /redislease --version >/dev/null; done
    printf 'start    %d ms for --version (mean of 10)\n' $(($(milliseconds "$began") / 10))
fi

log=$scratch/log
: >"$log"
began=$(date +%s%N)
container /redislease operator --listen=127.0.0.1:0 >"$log" 2>&1 &
operator=$!
trap 'kill -KILL $operator 2>/dev/null || true; rm -rf "$scratch"' EXIT
until_log() { # text, what it means: prints the milliseconds since the start
    until grep -qi "$1" "$log"; do
        kill -0 $operator 2>/dev/null && (($(milliseconds "$began") < 20000)) ||
            { cat "$log" >&2; die "the operator in the image $2."; }
        sleep 0.005
    done
    milliseconds "$began"
}
started=$(until_log 'operator started' 'does not start')
if ((${#emulator[@]})); then
    printf 'start    the operator serves /readyz in the emulation of %s (its time says nothing about a real machine)\n' "$cpu"
else
    printf 'start    %d ms until the operator serves /readyz\n' "$started"
fi
# The name is in /etc/hosts, and nothing listens at its address.
until_log 'connection refused' 'cannot resolve a name of /etc/hosts' >/dev/null
kill -TERM $operator
wait $operator || die "the operator in the image does not stop at SIGTERM."
