#!/usr/bin/env bash
# Two servers behind SGLang's router, which sends a conversation where its beginning is cached and
# leaves out a server that has died.
#
#   examples/router.sh MODEL [PORT]    PORT: of the router, 3000; the servers have the next two, the
#                                      router's metrics the one after them
#
# Needs curl and `sglang-router` (pip install sglang-router==0.3.2; PYTHON names its Python). Ctrl-C
# ends all three.
set -euo pipefail

[[ $# -ge 1 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
readonly MODEL="$1" PORT="${2:-3000}"
readonly MINISGL="${MINISGL_BINARY:-build/minisgl}"

trap 'exit 130' HUP INT TERM
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT

urls=()
for number in 1 2; do
  "${MINISGL}" serve --model "${MODEL}" --host 127.0.0.1 --port $((PORT + number)) --threads 1 &
  urls+=("http://127.0.0.1:$((PORT + number))")
  until curl --silent --fail --output /dev/null "${urls[-1]}/health"; do
    kill -0 "$!" || { echo "the server on port $((PORT + number)) has ended" >&2; exit 1; }
    sleep 0.1
  done
done
echo "http://127.0.0.1:${PORT}/v1 is served by ${urls[*]}"

options=(
  --policy cache_aware
  # A server that has died is known by its health, within two or three seconds. Until then, requests
  # whose beginning it had go to it again and again: retries must last longer than that (10 of them
  # take 7 s), and no request is lost but the streams that it had begun.
  --health-check-interval-secs 1 --health-check-timeout-secs 3
  --health-failure-threshold 2 --health-success-threshold 1
  --retry-max-retries 10 --retry-initial-backoff-ms 100
  # The router's circuits would open after some failures in a row, among which it counts answers
  # such as 400: one client's wrong requests would cut off all others. Left on as they are, they are
  # also later than the retries: the first two requests after a death end with status 500.
  --disable-circuit-breaker
  --prometheus-host 127.0.0.1 --prometheus-port $((PORT + 3))
)
"${PYTHON:-python3}" -m sglang_router.launch_router --host 127.0.0.1 --port "${PORT}" \
  "${options[@]}" --worker-urls "${urls[@]}" &
wait "$!"
