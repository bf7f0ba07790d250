// Command logits compares this project's log probabilities after 50 tokens with the log probabilities that
// ../llamacpp/logits.cpp writes:
//
//	go run ./testdata/bench/logits MODEL [FILE]
//
// It prints the largest difference over the vocabulary, and the mean difference for the actual next tokens. Without
// FILE, it prints what rounding activations, keys and values to other types changes over 512 tokens: the table of
// cmd/llmserve/README.md.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"

	"llmmemory/internal/serving/attention"
	"llmmemory/testdata/bench/fatal"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) == 2 {
		compare(os.Args[1], 512)
		return
	}
	if len(os.Args) != 3 {
		log.Fatal("usage: logits MODEL [FILE]")
	}
	theirs := fatal.Get(os.ReadFile(os.Args[2]))
	ours, vocab, err := logProbs(os.Args[1], tokens, attention.F32)
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
