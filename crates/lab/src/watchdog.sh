# Outlives its owner to stop what that leaves behind. Standard input carries one line for each thing the owner has:
#   pid NUMBER   a server        dir PATH   a folder        keep   they shall outlive the owner, until SIGTERM to this shell
# End of file means that the owner and every server still being started are past the point of adding more.
trap '' HUP INT TERM
pids=
keep=

# When the process started, in ticks since boot: with the number it tells a process from a later one of the same number.
started() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${stat##*') '}
    echo "${20}"
}

running() {
    for entry in $pids; do
        [ "$(started "${entry%:*}" 2>/dev/null)" = "${entry#*:}" ] && echo "${entry%:*}"
    done
}

clean() {
    left=$(running)
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
    # A folder can be removed once nobody writes to it. In a container without an init the dead stay listed: wait bounded.
    tries=0
    while [ -n "$(running)" ] && [ $tries -lt 40 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    rm -rf -- "$@"
}

set --
while read -r what value; do
    case $what in
        pid) start=$(started "$value") && pids="$pids $value:$start" ;;
        dir) set -- "$@" "$value" ;;
        keep) keep=1 ;;
    esac
done
if [ -n "$keep" ]; then
    trap 'keep=' TERM
    while [ -n "$keep" ]; do
        sleep 0.5
    done
fi
clean "$@"
