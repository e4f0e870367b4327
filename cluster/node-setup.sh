#!/usr/bin/env bash
# Set-up of a node, which cluster.yaml has Ray run; it may run again, and then finds its work done
#
#   node-setup.sh settings NAME=VALUE...    what every shell of the node exports
#   node-setup.sh head | worker             installs the checkout that `ray up` copied to ~/descent-sweep
set -euo pipefail
readonly mark='# descent-sweep' # ends every line of ours in ~/.bashrc
readonly bashrc=~/.bashrc package=~/descent-sweep venv=~/venv

case ${1:-} in
settings)
  for setting in "${@:2}"; do
    if ! [[ $setting =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then
      echo "node-setup.sh settings takes NAME=VALUE, got '$setting'" >&2
      exit 2
    fi
  done
  touch "$bashrc"
  cp -p "$bashrc" "$bashrc.new" # for its mode; moved below in one step, so that no shell reads half of it
  {
    sed -e "/$mark\$/d" -e '$a\' "$bashrc" # ends an unended last line, too
    for setting in "${@:2}"; do
      printf 'export %s=%q %s\n' "${setting%%=*}" "${setting#*=}" "$mark"
    done
    # Last, so that no setting takes back the token. Ray switches it on by itself only where a head starts.
    echo 'export PATH=$HOME/venv/bin:$PATH RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0' "$mark"
  } >"$bashrc.new"
  mv "$bashrc.new" "$bashrc"
  exit
  ;;
head)
  # `ray up` copies and never deletes: a module removed on the laptop would live on here. All copies get an
  # old date once they are installed (below), so what has it now was not copied this time.
  find "$package" -type f ! -newermt 1991-01-01 -delete
  echo 'export MLFLOW_TRACKING_URI=${MLFLOW_TRACKING_URI:-http://127.0.0.1:5000}' "$mark" >>"$bashrc"
  ;;
worker) ;;
*)
  echo "node-setup.sh takes settings, head or worker, got '${1:-}'" >&2
  exit 2
  ;;
esac

if [ -n "${SWEEP_CACHE:-}" ]; then
  timeout 300 systemctl is-system-running --wait || true # by then a local disk is mounted
  mkdir -p "$SWEEP_CACHE" 2>/dev/null && [ -w "$SWEEP_CACHE" ] || sudo install -d -o "$(id -un)" "$SWEEP_CACHE"
fi
# A new machine looks for updates by itself, and apt-get waits for no lock on its lists.
for try in 1 2 3 4 5 6 7 8 9 10; do
  if python3 -c 'import ensurepip, venv' || ! sudo -n true; then break; fi
  sudo apt-get -qq update && sudo DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv || sleep 15
done
test -x "$venv/bin/python" || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --retries 10 -c "$package/constraints.txt" "$package[cluster${SWEEP_EXTRAS:+,$SWEEP_EXTRAS}]"

if [ "$1" = head ]; then
  find "$package" -type f -exec touch -d 1990-01-01 {} +
else
  rm -rf "$package" # installed, and nobody copies from a worker
fi
