#!/bin/sh
# Compares this project with ik_llama.cpp on one model of random weights in each type, and prints a table of ratios.
# Usage: internal/bench/ik_llamacpp.sh FOLDER IK [TURNS [TYPE...]]
#
# IK is a folder of ik_llama.cpp with headers, and in build the static libraries and llama-quantize, built for this
# processor.
#
# FOLDER, outside the repository, gets the models (2 GB) and the results. What was measured is kept: started again, it
# goes on where it stopped. Remove FOLDER/ik to measure again.
#
# In each of TURNS (7) turns, both sides compute a prompt of 512 tokens, and decode with 1, 16 and 32 sequences over 512
# tokens that they share, one side after the other; the fastest of the rounds of a turn counts. ik_llama.cpp does so
# with and without flash attention, and with and without -rtr: the best counts. It rounds activations to 8 bits (to BF16
# with weights in F16), as this project does with int8 (and bf16); with f32, this project does not. Keys and values are
# F16.
# A cell is the median over turns of this project's speed divided by ik_llama.cpp's. THREADS is the number of threads
# (default: one for each processor); with one, processor time is measured, for machines on which other work runs.
# MEASURE="nice -n -15" runs each measurement by that command.
set -eu
fail() { echo "ik_llamacpp.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || fail "usage: internal/bench/ik_llamacpp.sh FOLDER IK [TURNS [TYPE...]]"
dir=$(mkdir -p "$1" && cd "$1" && pwd)
ik=$(cd "$2" && pwd)
turns=${3:-7}
shift $(($# < 3 ? $# : 3))
types=${*:-F16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL IQ4_XS MXFP4 Q2_K Q3_K_M Q4_K_M Q5_K_M Q6_K}
cd "$(dirname "$0")/../.."
case $dir/ in "$PWD"/*) fail "$dir is in the repository; name a folder outside" ;; esac
[ -e "$ik/build/src/libllama.a" ] || fail "$ik/build/src has no libllama.a"
threads=${THREADS:-$(nproc)}

bench=internal/bench/llamacpp/bench.cpp
[ "$dir/ikbench" -nt "$bench" ] ||
    g++ -O2 -fopenmp -DIK_LLAMA -I"$ik/include" -I"$ik/ggml/include" -o "$dir/ikbench" "$bench" \
        "$ik/build/src/libllama.a" "$ik/build/ggml/src/libggml.a" -lpthread -lm -ldl
go test -c -o "$dir/ours" ./internal/serving/model
[ -e "$dir/134m-F16.gguf" ] || go test -run WriteModels/llamas ./internal/serving/model -models "$dir"
mkdir -p "$dir/ik"
# use sets model and rounded to the file of a type and its rounding.
use() {
    model=$dir/ik-$1.gguf rounded=int8
    [ "$1" != F16 ] || model=$dir/134m-F16.gguf rounded=bf16
}
for type in $types; do
    use "$type"
    [ ! -e "$model" ] || continue
    "$ik/build/bin/llama-quantize" "$dir/134m-F16.gguf" "$model.part" "$type" "$threads" >"$dir/log" 2>&1 ||
        fail "$type: $(tail -1 "$dir/log")"
    mv "$model.part" "$model"
done

# measure SIDE COMMAND... appends the lines of a side of a turn.
measure() {
    side=$1
    shift
    ${MEASURE:-} "$@" >"$dir/measured" 2>"$dir/log" || fail "$type, $side: $(tail -1 "$dir/log")"
    sed "s/^/$type $turn $side /" "$dir/measured" >>"$out.part"
}
for turn in $(seq "$turns"); do
    for type in $types; do
        out=$dir/ik/$type.$turn
        [ ! -e "$out" ] || continue
        : >"$out.part"
        use "$type"
        measure f32 internal/bench/forward.sh "$dir/ours" "$model" "$threads" 2
        measure theirs env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "$dir/ikbench" "$model" "$threads" 2
        measure rounded internal/bench/forward.sh "$dir/ours" "$model" "$threads" 2 $rounded
        measure theirs env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "$dir/ikbench" "$model" "$threads" 2 rtr
        mv "$out.part" "$out"
    done
done
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $threads threads, medians of $turns turns;" \
    "this project / ik_llama.cpp; activations in f32 / int8 (F16: bf16)"
echo
for type in $types; do cat "$dir/ik/$type".[0-9]*; done | awk '
{ # TYPE TURN SIDE WORK [flash=N] SPEED tokens/s
    if (!($1 in seen)) { seen[$1] = 1; order[++count] = $1 }
    at = $1 SUBSEP $2 SUBSEP $3 SUBSEP $4
    if ($(NF - 1) + 0 > best[at]) best[at] = $(NF - 1) + 0
    if ($2 > turns) turns = $2
}
function median(type, side, work,    n, i, j, v, x) {
    for (i = 1; i <= turns; i++) {
        if (!(x = best[type, i, side, work]) || !best[type, i, "theirs", work]) continue
        x /= best[type, i, "theirs", work]
        for (j = n++; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
        v[j + 1] = x
    }
    return n ? sprintf("%.2f", v[int((n + 1) / 2)]) : "-"
}
END {
    print "| weights | prompt of 512 tokens | 1 sequence | 16 | 32 |"
    print "|---|---|---|---|---|"
    split("prefill=512 decode=1 decode=16 decode=32", works, " ")
    for (i = 1; i <= count; i++) {
        printf "| %s |", order[i]
        for (w = 1; w <= 4; w++)
            printf " %s / %s |", median(order[i], "f32", works[w]), median(order[i], "rounded", works[w])
        print ""
    }
}'
