#!/usr/bin/env bash
# Start of Ray on a node, and of MLflow on the head, which cluster.yaml has Ray run; it may run again
#
#   ray-start.sh head | worker [OPTION OF `ray start`]...
set -euo pipefail
readonly role=${1:-} options=("${@:2}")
readonly own_mlflow=http://127.0.0.1:5000 config=~/ray_bootstrap_config.yaml

case $role in
head | worker) ;;
*)
  echo "ray-start.sh takes head or worker, got '$role'" >&2
  exit 2
  ;;
esac
ray stop
ulimit -n 65536 || true
if [ "$role" = worker ]; then
  exec ray start --address="$RAY_HEAD_IP:6379" "${options[@]}"
fi

# Keeps one MLflow server on loopback: the lock is its life, and what kills it starts it again.
if [ "${MLFLOW_TRACKING_URI:-$own_mlflow}" = "$own_mlflow" ]; then
  mkdir -p ~/mlflow
  (setsid flock -n ~/mlflow/lock sh -c 'while :; do
    MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false DO_NOT_TRACK=true \
      mlflow server --host 127.0.0.1 --port 5000 --workers 1 \
      --backend-store-uri "${MLFLOW_BACKEND_STORE_URI:-sqlite:///$HOME/mlflow/mlflow.db}" \
      --artifacts-destination "$HOME/mlflow/artifacts"
    sleep 5
  done' </dev/null >>~/mlflow/log 2>&1 &)
fi
# A vanished worker is missed after five checks, each a period and a timeout apart: 10 s.
export RAY_health_check_period_ms=1000 RAY_health_check_timeout_ms=1000 RAY_health_check_failure_threshold=5
# Ray's second autoscaler counts the head as a worker on premises, and one machine would never join.
if grep -q '"type": "local"' "$config"; then export RAY_enable_autoscaler_v2=0; fi
# Ours last, so that no option takes them back: the head trains nothing, and its dashboard is on loopback.
exec ray start --head --port=6379 "${options[@]}" --num-cpus=0 --num-gpus=0 --dashboard-host=127.0.0.1 \
  --autoscaling-config="$config"
