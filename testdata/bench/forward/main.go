// Command forward measures this project's forward pass. ../llamacpp/bench.cpp measures llama.cpp's in the same way:
//
//	go run ./testdata/bench/forward MODEL THREADS ROUNDS [bf16|int8]
//
// With int8, the activations that are multiplied by quantized weights are rounded to 8 bits. llama.cpp also does this
// if the weights are in Q8_0 or Q4_0. With bf16, F16 weights are rounded to BF16, and so are the activations that are
// multiplied by F16 or BF16 weights. With one thread, the command measures processor time, which depends less on other
// work on the machine.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model"
	"llmmemory/testdata/bench/fatal"
	"llmmemory/testdata/bench/runner"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 && len(os.Args) != 5 {
		log.Fatal("usage: forward MODEL THREADS ROUNDS [bf16|int8]")
	}
	threads, rounds := fatal.Get(strconv.Atoi(os.Args[2])), fatal.Get(strconv.Atoi(os.Args[3]))
	var options []model.Option
	if len(os.Args) == 5 {
		option, ok := map[string]model.Option{"bf16": model.BF16Activations, "int8": model.Int8Activations}[os.Args[4]]
		if !ok {
			log.Fatalf("no activations %q: want bf16 or int8", os.Args[4])
		}
		options = append(options, option)
	}
	fatal.If(runner.With(os.Args[1], threads, 1024, attention.F16, options, func(_ *model.Model, r *model.Runner) {
		clock := int32(unix.CLOCK_MONOTONIC)
		if threads == 1 {
			clock = unix.CLOCK_PROCESS_CPUTIME_ID
		}
		measure(r, clock, "prefill=512", 512, rounds, func(int) *model.Batch { return prefill(512) })
		for _, n := range []int{1, 16, 32} {
			measure(r, clock, fmt.Sprintf("decode=%d", n), n, 3*rounds, func(round int) *model.Batch { return decode(n, round) })
		}
	}))
}

// measure prints the tokens a second of the fastest round.
func measure(r *model.Runner, clock int32, name string, tokens, rounds int, batch func(round int) *model.Batch) {
	fastest := time.Hour
	for round := range rounds {
		b := batch(round)
		begin := timeOf(clock)
		fatal.If(r.Forward(b))
		fatal.Get(r.ComputeLogits(b, 0, len(b.Logits)))
		fastest = min(fastest, timeOf(clock)-begin)
	}
	fmt.Printf("%s %.1f tokens/s\n", name, float64(tokens)/fastest.Seconds())
}

func timeOf(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // both clocks exist
	return time.Duration(t.Nano())
}

func prefill(n int) *model.Batch {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i * 37 % 32000)
	}
	b := runner.Prefill(tokens, 1)
	b.Logits = []int32{int32(n - 1)}
	return b
}

// decode returns a batch of n sequences. They share the 512 tokens of blocks 1 to 32, and each has 8 more
// blocks of its own. CommonPrefix is set, as in the engine's batches.
func decode(n, round int) *model.Batch {
	position := 512 + round%128
	b := &model.Batch{QueryStart: []int32{0}, Blocks: model.Blocks{TableStride: 40}}
	if n > 1 {
		b.CommonPrefix = 512
	}
	for i := range n {
		block := 40 + 8*i
		b.Tokens, b.Positions = append(b.Tokens, int32(i)), append(b.Positions, int32(position))
		b.Slots = append(b.Slots, int64(block*16+position-512))
		b.QueryStart, b.SeqLens, b.Logits = append(b.QueryStart, int32(i+1)), append(b.SeqLens, int32(position+1)),
			append(b.Logits, int32(i))
		for k := range 32 {
			b.BlockTables = append(b.BlockTables, int32(1+k))
		}
		for k := range 8 {
			b.BlockTables = append(b.BlockTables, int32(block+k))
		}
	}
	return b
}
