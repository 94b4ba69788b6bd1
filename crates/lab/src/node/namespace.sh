# The namespaces of a real node, in which its kubelet and its containerd run. This shell holds them as long as it lives.
#   namespace.sh FOLDER   a folder of the node; the file `ready` appears in it when all is mounted
set -eu
folder=$1
mount --make-rshared /
# The kubelet, containerd and the CNI plugins have fixed paths in these folders. The machine's own files stay as they are.
for hidden in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$hidden"; done
# The kubelet sets these to fixed values and fails if it cannot. They belong to the whole machine: the kubelet finds files
# with these values in their place.
set_aside() { # path below /proc/sys, value
    [ -e "/proc/sys/$1" ] || return 0
    file=$folder/$(echo "$1" | tr / .)
    echo "$2" >"$file"
    mount --bind "$file" "/proc/sys/$1"
}
set_aside vm/overcommit_memory 1
set_aside vm/panic_on_oom 0
set_aside kernel/panic 10
set_aside kernel/panic_on_oops 1
set_aside kernel/keys/root_maxkeys 1000000
set_aside kernel/keys/root_maxbytes 25000000
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
: >"$folder/ready"
exec sleep infinity
