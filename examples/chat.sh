#!/usr/bin/env bash
# A chat with curl: one answer, then a stream of which the text is shown.
#
#   examples/chat.sh [URL]      URL: http://127.0.0.1:1919/v1; the key is in MINISGL_API_KEY, if any
set -euo pipefail

readonly URL="${1:-http://127.0.0.1:1919/v1}"
readonly BODY='{"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 40'

ask() {
  curl --silent --show-error --fail-with-body --no-buffer "${URL}/chat/completions" \
    --header "Authorization: Bearer ${MINISGL_API_KEY:-none}" \
    --header 'Content-Type: application/json' --data "$1"
}

ask "${BODY}}"
echo
# Each event is a line `data: {...}`; the last one is `data: [DONE]`.
ask "${BODY}, \"stream\": true}" | while IFS= read -r line; do
  [[ "${line}" != 'data: [DONE]' ]] || break
  [[ -z "${line}" ]] || echo "${line#data: }"
done
