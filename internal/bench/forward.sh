#!/bin/sh
# Runs BenchmarkForward, for the other scripts. Usage: internal/bench/forward.sh TEST MODEL THREADS ROUNDS [ACTIVATIONS]
#
# TEST is the test program of internal/serving/model. It measures ROUNDS rounds of prompts, and three times as many of
# decoding. With one thread, processor time is measured, which depends less on other work on the machine.
set -eu
for works in "prefill $4" "decode $((3 * $4))"; do
    "$1" -test.run '^$' -test.bench "^BenchmarkForward$/${works% *}" -test.benchtime "${works#* }x" -test.cpu "$3" -model "$2" \
        -activations "${5:-f32}"
done | sed -n 's,^BenchmarkForward/\([^-[:space:]]*\).*[[:space:]]\([0-9.]*\) tokens/s.*,\1 \2 tokens/s,p'
