#!/usr/bin/env bash
# PID 1 of a Slurm cluster: a login node, which runs the controller, and nodes with addresses of their own
#
# slurm.sh FOLDER CPUS PYTHON NODE...
#   PYTHON   the folder of the interpreter, which every user shall see although it lie below /root
# Runs in namespaces of its own, whose processes die with it. Prints "up" once all nodes are idle.
set -euo pipefail
folder=$1 cpus=$2 python=$3
shift 3
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin:/sbin
hostname login
mkdir -p "$folder"/{state,log,munge,nodes}
# Else every program asks a name server that nobody reaches for the address of its own name.
printf '127.0.0.1 localhost\n10.78.0.1 login\n' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
: >"$folder/resolv.conf"
mount --bind "$folder/resolv.conf" "$(readlink -f /etc/resolv.conf)"
ip link set lo up
ip link add switch type bridge
ip addr add 10.78.0.1/24 dev switch
ip link set switch up
if [[ $python == /root/* ]]; then
  mkdir "$folder/python"
  mount --bind "$python" "$folder/python"
  mount -t tmpfs -o mode=755 tmpfs /root
  mkdir -p "$python"
  mount --bind "$folder/python" "$python"
fi
chmod 700 "$folder/munge"
dd if=/dev/urandom of="$folder/munge/key" bs=1 count=1024 status=none
chmod 400 "$folder/munge/key"
munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
  --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"
chmod 755 "$folder/munge"
number=10
for node in "$@"; do
  number=$((number + 1))
  unshare --net sleep infinity &
  holder=$!
  until [ "$(readlink /proc/$holder/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
  echo $holder >"$folder/nodes/$node"
  ip link add "v$number" type veth peer name eth0 netns $holder
  ip link set "v$number" master switch up
  inside="nsenter --net=/proc/$holder/ns/net"
  $inside ip addr add "10.78.0.$number/24" dev eth0
  $inside ip link set eth0 up
  $inside ip link set lo up
  $inside ip route add default via 10.78.0.1
  echo "10.78.0.$number $node" >>"$folder/hosts"
  echo "NodeName=$node NodeHostname=login NodeAddr=10.78.0.$number Port=17001 CPUs=$cpus" \
    "RealMemory=4000 State=UNKNOWN" >>"$SLURM_CONF"
done
cat >>"$SLURM_CONF" <<CONF
PartitionName=debug Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO PriorityTier=5
PartitionName=low Nodes=ALL MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high Nodes=ALL MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
CONF
slurmctld -f "$SLURM_CONF"
"$folder/start-node" "$@"
until [ "$(sinfo --noheader --format=%T)" = idle ]; do sleep 0.1; done
echo up
exec >/dev/null
while sleep 1; do :; done
