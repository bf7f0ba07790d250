// Command logits compares this project's log probabilities of 50 tokens with those of ../llamacpp/logits.cpp:
// go run ./testdata/bench/logits MODEL FILE
//
// It prints the largest difference over all tokens of the vocabulary, and the mean of those of the tokens that follow.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/model"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: logits MODEL FILE")
	}
	theirs, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	ours, vocab, err := logits(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if len(theirs) != 4*len(ours) {
		log.Fatalf("%d bytes of logits; %d are expected", len(theirs), 4*len(ours))
	}
	largest, sum := 0.0, 0.0
	for i := range tokens {
		a, b := make([]float64, vocab), make([]float64, vocab)
		for k := range vocab {
			a[k] = float64(ours[i*vocab+k])
			b[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(theirs[4*(i*vocab+k):])))
		}
		normalize(a)
		normalize(b)
		for k := range vocab {
			largest = max(largest, math.Abs(a[k]-b[k]))
		}
		next := (i + 1) * 37 % vocab
		sum += math.Abs(a[next] - b[next])
	}
	fmt.Printf("largest %.1e, mean %.1e\n", largest, sum/tokens)
}

const tokens, blockSize = 50, 16

// normalize turns logits into log probabilities.
func normalize(x []float64) {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v)
	}
	for i := range x {
		x[i] -= math.Log(sum)
	}
}

// logits are those of all tokens.
func logits(path string) ([]float32, int, error) {
	pool, err := parallel.New(1)
	if err != nil {
		return nil, 0, err
	}
	g, err := weights.OpenGGUF(path)
	if err != nil {
		return nil, 0, err
	}
	m, err := model.OpenGGUF(g, pool, model.Part{})
	if err != nil {
		return nil, 0, err
	}
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(blockSize, attention.F32), Layers: m.NumLayers,
		NumBlocks: 1 + tokens/blockSize}, pool)
	if err != nil {
		return nil, 0, err
	}
	r, err := model.NewRunner(m, store, pool, nil)
	if err != nil {
		return nil, 0, err
	}
	b := &model.Batch{QueryStart: []int32{0, tokens}, SeqLens: []int32{tokens},
		Blocks: model.Blocks{TableStride: 1 + tokens/blockSize}}
	for i := range tokens {
		b.Tokens, b.Positions = append(b.Tokens, int32(i*37%m.VocabSize)), append(b.Positions, int32(i))
		b.Slots, b.Logits = append(b.Slots, int64(i)), append(b.Logits, int32(i))
	}
	for i := range b.TableStride {
		b.BlockTables = append(b.BlockTables, int32(i))
	}
	if err := r.Forward(b); err != nil {
		return nil, 0, err
	}
	logits, err := r.ComputeLogits(b, 0, tokens)
	return logits, m.VocabSize, err
}
