#!/bin/sh
# Checks llmsim against llmserve on this machine. Usage: internal/bench/simulated.sh MODEL FOLDER [ROUNDS]
#
# llmserve bench serves MODEL under six loads, several rounds of each, taking turns. llmsim
# calibrate fits the time of a step to those of three of the loads. llmsim figures simulates the
# other three with the same scheduler and arrivals, and compares throughput, time to first token and
# time per token. FOLDER, outside the repository, gets what was measured; the figure's data is
# internal/simulation/experiment/serving.json. MEASURE="nice -n -15" runs each measurement by that command.
set -eu
model=$(realpath "$1")
dir=$(mkdir -p "$2" && cd "$2" && pwd)
rounds=${3:-3}
cd "$(dirname "$0")/../.."
go build -o "$dir/llmserve" ./cmd/llmserve
rm -f "$dir"/predict-* "$dir"/calibrate-*

serve() { # KIND RATE INPUT OUTPUT ROUND
    base="$dir/$1-$2-$3-$4-$5"
    ${MEASURE:-} "$dir/llmserve" bench "$model" --kv-cache-gb 0.2 --max-model-len 1024 --max-concurrency 1000 --num-prompts 80 \
        --seed "$5" --request-rate "$2" --input-len "$3" --output-len "$4" -o "$base.json" --steps "$base.csv" --arrivals "$base.arrivals.csv" |
        sed -n "1s|^|$1 $2/s, $3 + $4: |p"
}
for round in $(seq "$rounds"); do
    serve calibrate 5 64 64 "$round"
    serve predict 9 128 48 "$round"
    serve calibrate 7 256 32 "$round"
    serve predict 7 128 64 "$round"
    serve calibrate 14 64 48 "$round"
    serve predict 12 96 56 "$round"
done
go build -o "$dir/llmsim" ./cmd/llmsim
find "$dir" -name 'calibrate-*.csv' ! -name '*.arrivals.csv' -exec "$dir/llmsim" calibrate -o "$dir/cost.json" {} + | sed -n 1,2p
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
    printf '{"machine":"%s","date":"%s","cost":' "$machine, $(nproc) threads; $(basename "$model")" "$(date -u +%F)"
    sed 's/^ *//' "$dir/cost.json" | tr -d '\n' |
        sed 's|"name": *"[^"]*"|"name":"llmserve"|; s|"source": *"[^"]*"|"source":"llmserve bench under three other loads"|'
    printf ',"runs":['
    comma=
    for result in "$dir"/predict-*.json; do
        base=${result%.json}
        IFS=- read -r _ rate input output _ <<EOF
$(basename "$base")
EOF
        printf '%s\n{"load":"%s/s, %s + %s tokens","prompt":%s,"output":%s,"arrivals":[%s],"measured":{' "$comma" "$rate" \
            "$input" "$output" "$input" "$output" "$(sed 1d "$base.arrivals.csv" | cut -d, -f1 | paste -sd, -)"
        grep -E '"(output_throughput|(median|p90)_t(tf|po)t?_ms)"' "$result" | sed 's/,$//; s/[[:space:]]//g' | paste -sd, - | tr -d '\n'
        printf '}}'
        comma=,
    done
    echo ']}'
} >internal/simulation/experiment/serving.json
go run ./cmd/llmsim figures --only served --check -o "$dir/figures"
