#!/usr/bin/env bash
# Several "hosts" on one machine: network namespaces joined by a bridge that lives in a namespace of its own, so that
# their traffic never touches the machine's own network. Needs root and iproute2.
#
# Usage: tests/cluster/hosts.sh run HOSTS SLOTS PROGRAM [ARGUMENT...]   makes the hosts, starts SLOTS ranks of PROGRAM
#                                                                     on each (or 3,1: three on the first, one on the
#                                                                     second), and removes the hosts again
#                                                     (LOCKSTEP_HOSTS_MBIT: the limit of a host's link, none if unset)
#        tests/cluster/hosts.sh up HOSTS OWNER_PID    makes them and prints their names; hosts whose owner is
#                                                     no more are removed by whoever makes some next
#        tests/cluster/hosts.sh down OWNER_PID        ends what runs on them and removes them
#        tests/cluster/hosts.sh on HOST COMMAND...    what ssh would do; Open MPI calls it to start its daemons
#        tests/cluster/hosts.sh mca                   mpirun's options for these hosts, one a line
set -euo pipefail
shopt -s inherit_errexit

self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/hosts.sh
subnet=10.77.0

names_of() { # owner: the namespaces of its hosts and of their switch
  ip netns list | awk -v prefix="lockstep-$1-" 'index($1, prefix) == 1 { print $1 }'
}

down() { # owner
  local name
  for name in $(names_of "$1"); do
    ip netns pids "$name" | xargs -r kill -KILL 2>/dev/null || true
    ip netns delete "$name" || true
    rm -rf "/etc/netns/$name"
  done
}

remove_stale() { # a test that was killed could not clean up
  local owner
  for owner in $(ip netns list | sed -n 's/^lockstep-\([0-9]\+\)-.*/\1/p' | sort -u); do
    kill -0 "$owner" 2>/dev/null || down "$owner"
  done
}

up() { # number of hosts, owner
  local count=$1 owner=$2 switch=lockstep-$2-switch i name
  remove_stale
  ip netns add "$switch"
  ip -n "$switch" link add br0 type bridge
  ip -n "$switch" link set br0 up
  for ((i = 0; i < count; ++i)); do
    name=lockstep-$owner-$i
    ip netns add "$name"
    ip -n "$switch" link add "port$i" type veth peer name eth0 netns "$name"
    ip -n "$switch" link set "port$i" master br0 up
    ip -n "$name" address add "$subnet.$((10 + i))/24" dev eth0
    ip -n "$name" link set eth0 up
    if ((${LOCKSTEP_HOSTS_MBIT:-0} > 0)); then # the speed of what a host sends
      tc -n "$name" qdisc add dev eth0 root tbf rate "${LOCKSTEP_HOSTS_MBIT}mbit" burst 256kb latency 50ms
    fi
    ip -n "$name" link set lo up
    # "ip netns exec" mounts what lies here over /etc.
    mkdir -p "/etc/netns/$name"
    {
      echo 127.0.0.1 localhost
      for ((j = 0; j < count; ++j)); do
        echo "$subnet.$((10 + j)) lockstep-$owner-$j"
      done
    } >"/etc/netns/$name/hosts"
    echo "$name"
  done
}

on() { # host, words of a command for the shell
  while [[ $1 == -* ]]; do shift; done
  local host=$1
  shift
  # shellcheck disable=SC2016  # the inner shell expands these
  exec ip netns exec "$host" unshare --uts bash -c 'hostname "$0" && exec bash -c "$1"' "$host" "$*"
}

mca() {
  printf '%s\n' --mca plm rsh --mca plm_rsh_agent "$self on" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" \
    --mca pml ob1 --mca btl self,vader,tcp
}

run() { # hosts, slots, program...
  local count=$1 slots=$2 status=0 hosts words
  shift 2
  trap 'down $$; rm -f "/tmp/lockstep-hosts.$$"' EXIT
  trap 'exit 143' TERM
  trap 'exit 130' INT
  hosts=$(up "$count" $$)
  awk -v slots="$slots" '{ n = split(slots, list, ","); print $1, "slots=" list[NR <= n ? NR : n] }' \
    <<<"$hosts" >"/tmp/lockstep-hosts.$$"
  mapfile -t words < <(mca)
  words=(mpirun --hostfile "/tmp/lockstep-hosts.$$" "${words[@]}" --bind-to none "$@")
  # In the background, because a signal is handled only once a foreground command has ended.
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    "$self" on "$(head -n 1 <<<"$hosts")" "cd $(printf %q "$PWD") && exec $(printf '%q ' "${words[@]}")" &
  wait $! || status=$?
  exit "$status"
}

case ${1:-} in
  run | up | down | on | mca) "$@" ;;
  *)
    sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
