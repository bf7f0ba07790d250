#!/bin/sh
# Measures llmserve over HTTP, for llamacpp.sh. Usage: internal/bench/overhttp.sh LLMSERVE MODEL THREADS ROUNDS
#
# llamacpp/bench.cpp measures llama.cpp with the same loads through its library. One load is 16 requests at once, with
# prompts of 2,048 tokens that differ only in the last. The other is 8 completions of a prompt of 1,024 tokens. Each
# answer has 64 tokens. Each round has new prompts; the fastest counts.
set -eu
fail() { echo "overhttp.sh: $*" >&2; exit 1; }
dir=$(mktemp -d)
"$1" "$2" --port 0 --kv-cache-gb 1 --served-model-name m --threads "$3" >"$dir/said" &
server=$!
trap 'kill $server 2>/dev/null || :; rm -r "$dir"' EXIT
until url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$dir/said" | head -1) && [ -n "$url" ]; do
    kill -0 "$server" 2>/dev/null || fail "llmserve does not start"
    sleep 0.1
done

# measure NAME REQUESTS N PROMPT sends requests at once, each for N answers to a prompt of PROMPT tokens.
measure() {
    for round in $(seq "$rounds"); do
        rm -f "$dir"/curl "$dir"/*.json
        for i in $(seq "$2"); do
            awk -v i="$i" -v n="$3" -v prompt="$4" -v round="$round" 'BEGIN {
                printf "{\"model\": \"m\", \"max_tokens\": 64, \"ignore_eos\": true, \"seed\": %d, \"n\": %d, \"prompt\": [", i, n
                for (k = 0; k < prompt - 1; k++) printf "%d, ", (k * 37 + 1000 * round) % 32000
                printf "%d]}\n", 100 + i
            }' >"$dir/request$i.json"
            [ "$i" = 1 ] || echo next >>"$dir/curl"
            printf '%s = "%s"\n' url "$url/v1/completions" header "Content-Type: application/json" \
                data "@$dir/request$i.json" output "$dir/answer$i.json" >>"$dir/curl"
            echo fail >>"$dir/curl"
        done
        begin=$(date +%s%N)
        curl --no-progress-meter --parallel --parallel-immediate --config "$dir/curl" || fail "$1: a request was refused"
        end=$(date +%s%N)
        right=$(grep -l "\"completion_tokens\": *$((64 * $3))\b" "$dir"/answer*.json | wc -l)
        [ "$right" = "$2" ] || fail "$1: $right of $2 answers have $((64 * $3)) tokens"
        echo "$((end - begin))"
    done >"$dir/times"
    sort -n "$dir/times" | awk -v name="$1" 'NR == 1 { printf "%s %.2f s\n", name, $1 / 1e9 }'
}
rounds=$4
measure shared=16 16 1 2048
measure n=8 1 8 1024
