#!/bin/sh
# Compares the forward pass with llama.cpp's, built natively, on the same files of random
# weights. Usage: testdata/bench/llamacpp.sh FOLDER [ROUNDS]
#
# FOLDER, outside the repository, gets the models and llama.cpp: its sources as the npm
# package llama.rn ships them, with the prefix of their names taken off. GGML=FOLDER of a
# checkout of ggml adds the products of llamafile, which that package leaves out.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD/testdata/bench/llamacpp
dir=$(mkdir -p "$1" && cd "$1" && pwd)
rounds=${2:-5}
threads=$(nproc)
version=0.12.9

if [ ! -x "$dir/bench" ]; then
    (cd "$dir" && npm pack --silent "llama.rn@$version" >/dev/null && tar xzf "llama.rn-$version.tgz" package/cpp && rm -rf src && mv package/cpp src)
    cd "$dir/src"
    rm -rf ggml-metal* ggml-opencl* ggml-hexagon* ggml-blas* jsi rn-* models/build ../obj
    mkdir ../obj
    find . -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) -exec sed -i 's/lm_ggml/ggml/g; s/LM_GGML/GGML/g; s/lm_gguf/gguf/g' {} +
    defines="-DGGML_USE_CPU -DGGML_USE_CPU_REPACK -DGGML_USE_OPENMP -D_GNU_SOURCE -DNDEBUG -DGGML_VERSION=\"x\" -DGGML_COMMIT=\"x\" -DLLAMA_USE_HTTPLIB=0"
    if [ -n "${GGML:-}" ]; then
        mkdir -p ggml-cpu/llamafile
        cp "$GGML"/src/ggml-cpu/llamafile/sgemm.* ggml-cpu/llamafile/
        defines="$defines -DGGML_USE_LLAMAFILE"
    fi
    for f in ggml*.c ggml*.cpp gguf.cpp ggml-cpu/*.c ggml-cpu/*.cpp ggml-cpu/amx/*.cpp ggml-cpu/arch/x86/* ggml-cpu/llamafile/*.cpp llama*.cpp unicode*.cpp models/*.cpp; do
        [ -e "$f" ] && printf '%s\n' "$f"
    done | xargs -P "$threads" -I{} sh -c '
        f={}; case $f in *.c) cc="gcc -std=c11" ;; *) cc="g++ -std=c++17" ;; esac
        $cc -O3 -march=native -fopenmp -fPIC '"$defines"' -I. -Iggml-cpu -Imodels -Icommon -Inlohmann -c "$f" -o "../obj/$(echo "$f" | tr / _).o"'
    g++ -O2 -fopenmp -I. -o ../bench "$here/bench.cpp" ../obj/*.o -lpthread -lm -ldl
    cd - >/dev/null
fi
[ -e "$dir/134m-F16.gguf" ] || go run ./testdata/bench/randomgguf "$dir"
go build -o "$dir/ours" ./testdata/bench/forward

go build -o "$dir/llmserve" ./cmd/llmserve
go build -o "$dir/overhttp" ./testdata/bench/overhttp

for model in 25m-F16 134m-F16 134m-Q8_0 134m-Q4_0; do
    for turn in 1 2; do
        echo "$model, llama.cpp, turn $turn"
        "$dir/bench" "$dir/$model.gguf" "$threads" "$rounds"
        echo "$model, this project, turn $turn"
        "$dir/ours" "$dir/$model.gguf" "$threads" "$rounds"
        case $model in *-Q*) # llama.cpp rounds activations to 8 bits with these weights
            echo "$model, this project with activations in 8 bits, too, turn $turn"
            "$dir/ours" "$dir/$model.gguf" "$threads" "$rounds" int8 ;;
        esac
    done
done
# Requests that share a prompt, and several completions: llama.cpp's side is its library, which does what
# its server would and does not pay for HTTP; ours is llmserve over HTTP.
for model in 25m-F16 134m-F16; do
    echo "$model, llama.cpp, served"
    "$dir/bench" "$dir/$model.gguf" "$threads" 1 served
    echo "$model, this project, served"
    "$dir/overhttp" "$dir/llmserve" "$dir/$model.gguf" "$threads" 3
done
