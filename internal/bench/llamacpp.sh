#!/bin/sh
# Compares this project with llama.cpp, built natively, on the same files of random weights, and
# prints the tables of cmd/llmserve/README.md. Usage: internal/bench/llamacpp.sh FOLDER [ROUNDS | families]
#
# With "families" it compares log probabilities instead, of a tiny model of each family, which takes seconds. llama.cpp's
# GELU is computed there, not looked up in a table of F16, which is off by 2e-3.
#
# FOLDER, outside the repository, gets llama.cpp, the models (600 MB) and the results. It takes about
# 2 minutes to build and 10 to measure on two cores that nothing else uses. What was built and measured is kept: started
# again, it goes on where it stopped. Remove FOLDER/results to measure again.
#
# Both sides do the same number of rounds of each work, and the fastest round counts. There are ROUNDS (2) turns, in
# which each side does 3 rounds, and ROUNDS rounds of requests over HTTP. llama.cpp does its rounds with and without
# flash attention. MEASURE="nice -n -15" runs each measurement by that command.
#
# It needs go, npm, gcc, g++ and curl, and fetches llama.cpp's sources as the npm package llama.rn ships
# them; the prefix of their names is taken off. That package leaves out llamafile's products, which
# are of GGML, the folder of a checkout of ggml, or else of a Go module that ships them.
set -eu
version=0.12.9
module=github.com/ollama/ollama@v0.17.4

fail() { echo "llamacpp.sh: $*" >&2; exit 1; }
[ $# -ge 1 ] || fail "which folder? usage: internal/bench/llamacpp.sh FOLDER [ROUNDS | families]"
rounds=${2:-2}
[ "$rounds" = families ] || [ "$rounds" -ge 1 ] 2>/dev/null || fail "$rounds rounds; want a number from 1 on"
for tool in go npm tar gcc g++ curl; do
    command -v "$tool" >/dev/null || fail "$tool is needed and not installed"
done
cd "$(dirname "$0")/../.."
dir=$(mkdir -p "$1" && cd "$1" && pwd)
case $dir/ in "$PWD"/*) fail "$dir is in the repository; name a folder outside" ;; esac
here=$PWD/internal/bench/llamacpp
threads=$(nproc)

# fetch puts llama.cpp's sources into src.
fetch() (
    cd "$dir"
    npm pack --silent "llama.rn@$version" >/dev/null || fail "npm cannot fetch llama.rn $version"
    rm -rf package src && tar xzf "llama.rn-$version.tgz" package/cpp && mv package/cpp src
    ggml=${GGML:-}
    if [ -z "$ggml" ]; then
        ggml=$(go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/ml/backend/ggml/ggml
    fi
    products=$ggml/src/ggml-cpu/llamafile
    [ -e "$products/sgemm.cpp" ] || fail "$products has no sgemm.cpp; set GGML to a checkout of ggml"
    cd src
    rm -rf ggml-metal* ggml-opencl* ggml-hexagon* ggml-blas* jsi rn-* models/build
    find . -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) -exec sed -i 's/lm_ggml/ggml/g; s/LM_GGML/GGML/g; s/lm_gguf/gguf/g' {} +
    mkdir -p ggml-cpu/llamafile
    cp "$products"/sgemm* ggml-cpu/llamafile/
    sed -i 's/^#define GGML_GELU_FP16/\/\/&/' ggml-cpu/vec.h
    chmod -R u+w . && touch ../src.complete
)

# build compiles what is not compiled yet: of the models only those that are compared, so that the linker must not ask
# for the others.
build() (
    cd "$dir/src" && mkdir -p ../obj
    models=$(printf 'models/%s.cpp ' llama gemma2 gemma3 phi3 smollm3 granite olmo2 qwen2 qwen2moe qwen3 qwen3moe openai-moe lfm2 deepseek2 glm4 glm4-moe llama4 ernie4-5 ernie4-5-moe)
    defines='-DGGML_USE_CPU -DGGML_USE_LLAMAFILE -DGGML_USE_CPU_REPACK -DGGML_USE_OPENMP -D_GNU_SOURCE -DNDEBUG -DGGML_VERSION=\"x\" -DGGML_COMMIT=\"x\" -DLLAMA_USE_HTTPLIB=0'
    for f in ggml*.c ggml*.cpp gguf.cpp ggml-cpu/*.c ggml-cpu/*.cpp ggml-cpu/amx/*.cpp ggml-cpu/arch/x86/* ggml-cpu/llamafile/*.cpp llama*.cpp unicode*.cpp $models; do
        [ ! -e "$f" ] || printf '%s\n' "$f"
    done | xargs -P "$threads" -I{} sh -c '
        f={}; o=../obj/$(echo "$f" | tr / _).o
        [ ! -e "$o" ] || exit 0
        case $f in *.c) cc="gcc -std=c11" ;; *) cc="g++ -std=c++17" ;; esac
        $cc -O3 -march=native -fopenmp -fPIC '"$defines"' -I. -Iggml-cpu -Imodels -Icommon -Inlohmann -c "$f" -o "$o.part" && mv "$o.part" "$o"' ||
        fail "llama.cpp could not be compiled"
    for program in logits bench; do
        g++ -O2 -fopenmp -I. -o ../$program.part "$here/$program.cpp" ../obj/*.o -lpthread -lm -ldl -Wl,--unresolved-symbols=ignore-all && mv ../$program.part ../$program
    done
)

echo "building in $dir"
[ -e "$dir/src.complete" ] || fetch
[ -x "$dir/bench" ] || build
if [ "$rounds" = families ]; then
    go test -run WriteModels/tiny ./internal/serving/model -models "$dir/tiny"
    go build -o "$dir/compare" ./internal/bench/logits
    for file in "$dir"/tiny/*.gguf; do
        printf '%s: ' "$(basename "$file" .gguf)"
        if "$dir/logits" "$file" "$file.logits" 2>"$dir/errors"; then
            "$dir/compare" "$file" "$file.logits"
        else
            grep -m1 error "$dir/errors" # llama.cpp needs 27 layers of DeepSeek V2 Lite
        fi
    done
    exit
fi
if [ ! -e "$dir/models.complete" ]; then
    go test -run WriteModels/llamas ./internal/serving/model -models "$dir"
    touch "$dir/models.complete"
fi
go test -c -o "$dir/ours" ./internal/serving/model
go build -o "$dir/llmserve" ./cmd/llmserve

# pair measures llama.cpp and then this project: pair NAME MODEL ROUNDS_OF_LLAMA.CPP OURS
mkdir -p "$dir/results"
pair() {
    out=$dir/results/$1
    [ ! -e "$out" ] || return 0
    echo "$(date +%T) $1"
    ${MEASURE:-} "$dir/bench" "$dir/$2.gguf" "$threads" $3 >"$out.theirs"
    ${MEASURE:-} $4 >"$out.ours"
    { sed "s/^/$2 theirs /" "$out.theirs" && sed "s/^/$2 ours /" "$out.ours"; } >"$out.part"
    case $2 in *-Q*) # llama.cpp rounds activations to 8 bits with these weights
        ${MEASURE:-} $4 int8 >"$out.int8"
        sed "s/^/$2 int8 /" "$out.int8" >>"$out.part" ;;
    esac
    rm -f "$out.theirs" "$out.ours" "$out.int8" && mv "$out.part" "$out"
}
for turn in $(seq "$rounds"); do
    for model in 25m-F16 134m-F16 134m-Q8_0 134m-Q4_0; do
        pair "$model.$turn" "$model" 3 "internal/bench/forward.sh $dir/ours $dir/$model.gguf $threads 3"
    done
done
# Requests that share a prompt, and several completions: llama.cpp's side is its library, which does what
# its server would and does not pay for HTTP; ours is llmserve over HTTP.
for model in 25m-F16 134m-F16; do
    pair "$model.0" "$model" "$rounds served" "internal/bench/overhttp.sh $dir/llmserve $dir/$model.gguf $threads $rounds"
done
for model in 25m-F16 134m-F16; do
    [ -e "$dir/results/$model.overhead" ] && continue
    ${MEASURE:-} "$dir/llmserve" bench "$dir/$model.gguf" --threads "$threads" --num-prompts 64 --max-concurrency 32 --input-len 16 --output-len 64 >"$dir/results/overhead.part"
    sed -n "s/^scheduling/$model, 32 sequences: &/p" "$dir/results/overhead.part" >"$dir/results/$model.overhead" && rm "$dir/results/overhead.part"
done

{
    echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $threads threads, $(date -u +%F); llama.rn $version; this project / llama.cpp"
    echo
    awk -f "$here/table.awk" "$dir"/results/*.[0-9]*
    echo
    cat "$dir"/results/*.overhead
} | tee "$dir/table.md"
