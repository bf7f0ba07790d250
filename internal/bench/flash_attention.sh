#!/bin/sh
# Measures decoding of libllm_cache beside GGML_OP_FLASH_ATTN_EXT of an installed ggml
# (https://github.com/ggml-org/ggml, d99724f or newer), alternately in one process:
#
#   internal/bench/flash_attention.sh INCLUDE LIB [CPUS]
#
# INCLUDE is the folder of ggml.h and ggml-cpu.h, LIB that of libggml-base.so and
# libggml-cpu.so, built for this processor (GGML_NATIVE=ON, no OpenMP). It also needs
# build/libllm_cache.so (make cache), 4 GB of memory, gcc and taskset. CPUS are the
# processors to measure with, as a list for taskset (0,1): first one thread on the
# first, then a thread on each. Neither library pins its threads; both have the same
# processors.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
include=$1 lib=$2 cpus=${3:-0}
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${LLM_BUILD:-$root/build}
[ -e "$build/libllm_cache.so" ] || { echo "$0: no $build/libllm_cache.so: run make cache" >&2; exit 1; }
for file in "$include/ggml-cpu.h" "$lib/libggml-cpu.so"; do
    [ -e "$file" ] || { echo "$0: no $file" >&2; exit 1; }
done
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
gcc -std=c11 -O2 -Wall -Wextra -I"$root/capi/cache" -isystem "$include" "$root/internal/bench/flash_attention.c" \
    -L"$build" -lllm_cache -L"$lib" -lggml-cpu -lggml-base -lm \
    -Wl,-rpath,"$build" -Wl,-rpath,"$lib" -o "$program/flash_attention"
threads=$(echo "$cpus" | tr ',' '\n' | wc -l)
for context in 4096 16384; do
    taskset -c "${cpus%%,*}" "$program/flash_attention" 1 "$context"
    [ "$threads" -eq 1 ] || taskset -c "$cpus" "$program/flash_attention" "$threads" "$context"
done
