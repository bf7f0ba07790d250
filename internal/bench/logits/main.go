// Command logits measures the accuracy of log probabilities. There are two forms:
//
//	go run ./internal/bench/logits MODEL FILE
//	go run ./internal/bench/logits [-driver LIBRARY] [-tokens N] MODEL
//
// The first form compares this project with llama.cpp, after each of 50 tokens. FILE has the logits of llama.cpp, which
// ../llamacpp/logits.cpp writes. The command prints the largest difference over the vocabulary. It also prints the mean
// difference for the actual next tokens.
//
// The second form prints the table of cmd/llmserve/README.md. A row of the table is for a type of activations and a
// type of keys and values. It shows how much log probabilities change if numbers are rounded to these types. The prompt
// has 512 tokens, or N. With -driver, the table also has rows for a GPU.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"llmmemory/internal/bench/fatal"
	"llmmemory/internal/serving/attention"
)

func main() {
	log.SetFlags(0)
	driver := flag.String("driver", "", "`library` of NVIDIA's driver, for a comparison with a GPU")
	length := flag.Int("tokens", 512, "tokens of the prompt, unless there is a FILE")
	flag.Parse()
	if flag.NArg() == 1 {
		compare(flag.Arg(0), *length, *driver)
		return
	}
	if flag.NArg() != 2 {
		log.Fatal("usage: logits [-driver LIBRARY] [-tokens N] MODEL, or logits MODEL FILE")
	}
	theirs := fatal.Get(os.ReadFile(flag.Arg(1)))
	ours, vocab, err := logProbs(flag.Arg(0), tokens, attention.F32)
	fatal.If(err)
	if len(theirs) != 4*len(ours) {
		log.Fatalf("%d bytes of logits; %d are expected", len(theirs), 4*len(ours))
	}
	largest, sum := 0.0, 0.0
	for i := range tokens {
		a, b := ours[i*vocab:][:vocab], make([]float64, vocab)
		for k := range vocab {
			b[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(theirs[4*(i*vocab+k):])))
		}
		normalize(b)
		for k := range vocab {
			largest = max(largest, math.Abs(a[k]-b[k]))
		}
		next := (i + 1) * 37 % vocab
		sum += math.Abs(a[next] - b[next])
	}
	fmt.Printf("largest %.1e, mean %.1e\n", largest, sum/tokens)
}

const tokens = 50

func normalize(x []float64) {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v)
	}
	for i := range x {
		x[i] -= math.Log(sum)
	}
}
