#!/bin/sh
# Checks that llm-d's indexer reads llmserve's KV events: of two replicas of the demo it must say how many blocks of a
# prompt each has cached. Usage: testdata/bench/llmd.sh FOLDER
#
# FOLDER is a checkout of llm-d-kv-cache (https://github.com/llm-d/llm-d-kv-cache; 7be76e1 was checked). Nothing is
# written there. It needs go, which fetches the modules that llm-d-kv-cache requires.
set -eu
[ $# = 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$1"
grep -qs '^module github.com/llm-d/llm-d-kv-cache$' go.mod ||
    { echo "$0: $1 is not a checkout of llm-d-kv-cache" >&2; exit 1; }
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
go build -C "$root" -o "$programs/llmserve" ./cmd/llmserve
go build -o "$programs/llmd" "$root/testdata/bench/llmd/main.go"
"$programs/llmd" "$programs/llmserve"
