#!/usr/bin/env bash
# PID 1 of a lab host: gives it a root of its own, copy-on-write over this machine's, and runs its sshd
#
# boot.sh NAME ADDRESS HOME DISK STORAGE KEYS NEEDED...
#   DISK     a folder that outlives this boot: what the host writes
#   STORAGE  mounted at /srv/storage; empty: the host has none
#   KEYS     authorized_keys of its user, root, who lives in HOME
#   NEEDED   folders that the host must see, although they may be mounts of this machine
# Prints its process id as this machine counts, then "up" once sshd answers.
set -euo pipefail
name=$1 address=$2 home=$3 disk=$4 storage=$5 keys=$6
shift 6
read -r pid _ </proc/self/stat
echo "$pid"

root=$disk/root
mkdir -p "$disk/written" "$disk/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$disk/written,workdir=$disk/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for folder in dev/shm run tmp; do
  mount -t tmpfs tmpfs "$root/$folder"
  chmod 1777 "$root/$folder"
done
for folder in "$@"; do
  if ! [ -e "$root/$folder/bin" ]; then
    mkdir -p "$root/$folder"
    mount --bind -o ro "$folder" "$root/$folder"
  fi
done
if [ -n "$storage" ]; then
  mkdir -p "$root/srv/storage"
  mount --bind "$storage" "$root/srv/storage"
fi
cd "$root"
pivot_root . .
umount -l .
cd /

hostname "$name"
ip link set lo up
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >/etc/hosts
: >/etc/resolv.conf
sed -i "s|^\(root:.*\):[^:]*:[^:]*\$|\1:$home:/bin/bash|" /etc/passwd
mkdir -p /run/sshd "$home/.ssh"
chmod 700 "$home" "$home/.ssh"
touch "$home/.bashrc"
printf '%s' "$keys" >"$home/.ssh/authorized_keys"
key=/etc/ssh/lab_host_key
[ -e $key ] || ssh-keygen -q -t ed25519 -N '' -f $key
"$(command -v sshd)" -D -f /dev/null -h $key -o UsePAM=no -o StrictModes=no -o PidFile=none \
  -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password &
until (: <>/dev/tcp/127.0.0.1/22) 2>/dev/null; do sleep 0.02; done
echo up
exec >/dev/null
wait $!
