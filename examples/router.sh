#!/usr/bin/env bash
# Two servers behind SGLang's router, which sends a conversation where its beginning is cached and
# leaves out a server that has died.
#
#   examples/router.sh MODEL [PORT]    PORT: of the router, 3000; the servers have the next two
#
# Needs `sglang-router` (pip install sglang-router==0.3.2). Ctrl-C ends all three.
set -euo pipefail

[[ $# -ge 1 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
readonly MODEL="$1" PORT="${2:-3000}"
readonly MINISGL="${MINISGL_BINARY:-build/minisgl}"

trap 'exit 130' INT TERM
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT

urls=()
for number in 1 2; do
  "${MINISGL}" serve --model "${MODEL}" --host 127.0.0.1 --port $((PORT + number)) --threads 1 &
  urls+=("http://127.0.0.1:$((PORT + number))")
done
for url in "${urls[@]}"; do
  until curl --silent --fail --output /dev/null "${url}/health"; do sleep 0.1; done
done
echo "http://127.0.0.1:${PORT}/v1 is served by ${urls[*]}"
python3 -m sglang_router.launch_router --host 127.0.0.1 --port "${PORT}" --policy cache_aware \
  --worker-urls "${urls[@]}" &
wait "$!"
