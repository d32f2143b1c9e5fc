#!/bin/sh
# Every route with curl. URL is the service, KEY an API key where it asks for one.
#
#   URL=http://127.0.0.1:8000 KEY=rk_first_… sh examples/service/requests.sh
set -eu
URL=${URL:-http://127.0.0.1:8000}
STUDY=$URL/v1/studies/banners
send() {
    curl --silent --show-error --fail-with-body --header "Authorization: Bearer ${KEY:-none}" \
        --header "Content-Type: application/json" "$@"
    echo
}

send "$STUDY/decide" --data '{"id": "curl-1", "contexts": [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.5, 0.5], [0.9, 0.8, 0.7, 0.6]]}'
send "$STUDY/decide" --data '{"requests": [
  {"id": "curl-2", "contexts": {"deals": [0.1, 0.2, 0.3, 0.4], "video": [0.9, 0.8, 0.7, 0.6]}},
  {"id": "curl-3", "contexts": [[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]], "available": ["news", "video"]}]}'
send "$STUDY/reward" --data '{"id": "curl-1", "reward": 1}'
send "$STUDY/reward" --data '{"rewards": [{"id": "curl-2", "reward": 0}, {"id": "curl-3", "reward": 1}]}'
send "$STUDY/schema"
send "$STUDY/status"
send "$STUDY/versions"
send "$STUDY/pin" --data '{"reason": "holidays"}'
send "$STUDY/unpin" --data '{}'
send "$STUDY/repair-clock" --data '{"reason": "the clock is right"}'
send "$STUDY/erase" --data '{"ids": ["curl-3"], "reason": "request 12"}'
send "$STUDY/prune" --data '{"before": "2025-11-18", "dry_run": true}'
send "$STUDY/verify"
send "$STUDY/export" --output /dev/null
send "$STUDY/backup" --output /dev/null
send "$STUDY/activate" --data '{"version": 0, "reason": "back to the start"}'
send "$URL/metrics"
send "$URL/health/ready"
