package servetest_test

import (
	"math"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/paper"
	"llmmemory/internal/serve"
	"llmmemory/internal/v0"
)

// The setting of the paper for OPT-13B (paper §1).
const (
	blockSize = 16
	blocks    = 983
	longest   = 2048
)

func systems(t testing.TB) map[string]serve.Scheduler {
	limits := paper.Limits{Tokens: 2560, Seqs: 256}
	all := map[string]serve.Scheduler{}
	add := func(name string, s serve.Scheduler, err error) {
		require.NoError(t, err)
		all[name] = s
	}
	s, err := paper.NewSOSP(paper.Config{Block: blockSize, GPU: blocks, CPU: 1638, Watermark: 0.01}, limits, false)
	add("sosp", s, err)
	for name, policy := range map[string]paper.Policy{"orca-max": paper.Max, "orca-pow2": paper.Pow2, "orca-oracle": paper.Oracle} {
		s, err := paper.NewOrca(paper.OrcaConfig{Block: blockSize, Blocks: blocks, Longest: longest, Policy: policy}, limits)
		add(name, s, err)
	}
	f, err := paper.NewStatic(paper.StaticConfig{Batch: 5, Longest: 2040})
	add("fastertransformer", f, err)
	config := v0.SchedulerConfig{
		Manager:   v0.Config{Block: blockSize, GPU: blocks, CPU: 1638, Watermark: 0.01},
		MaxTokens: 2560, MaxSeqs: 256, MaxLen: longest,
	}
	v, err := v0.NewScheduler(config)
	add("vllm-v0", v, err)
	config.Mode = v0.Swap
	v, err = v0.NewScheduler(config)
	add("vllm-v0-swap", v, err)
	config.Mode, config.Chunked, config.MaxTokens = v0.Recompute, true, 512
	v, err = v0.NewScheduler(config)
	add("vllm-v0-chunked", v, err)
	return all
}

// world is a small simulator: Poisson arrivals, or so many requests all the
// time, lengths about as long as
// ShareGPT's, the cost of an iteration as in paper §3.
type world struct {
	s      serve.Scheduler
	rate   float64 // of arrivals, in 1/s
	closed int     // requests at any time; 0: as they arrive
	rng    *rand.Rand

	it       serve.Iteration
	now      float64 // s
	arrival  float64
	requests []simulated // by id, which are used again
	spare    []int
	done     []int
	answered []int

	sequences, answers, preemptions int
}

type simulated struct{ prompt, output, generated int }

func newWorld(s serve.Scheduler, rate float64) *world {
	return &world{s: s, rate: rate, rng: rand.New(rand.NewSource(1))}
}

func (w *world) length(mean float64) int { return 1 + int(w.rng.ExpFloat64()*mean) }

func (w *world) arrive(t testing.TB) {
	for w.arrival <= w.now && w.closed == 0 || len(w.requests)-len(w.spare) < w.closed {
		w.arrival += w.rng.ExpFloat64() / w.rate
		r := simulated{prompt: w.length(161), output: w.length(337)}
		if r.prompt+r.output >= 2040 {
			continue
		}
		id := len(w.requests)
		if n := len(w.spare); n > 0 {
			id, w.spare = w.spare[n-1], w.spare[:n-1]
			w.requests[id] = r
		} else {
			w.requests = append(w.requests, r)
		}
		if err := w.s.Add(serve.Request{ID: id, Prompt: r.prompt, Output: r.output}); err != nil {
			t.Fatal(err)
		}
	}
}

// step runs one iteration, or waits for the next arrival.
func (w *world) step(t testing.TB) {
	w.arrive(t)
	if err := w.s.Step(&w.it); err != nil {
		t.Fatal(err)
	}
	if w.it.Idle() {
		w.now = math.Max(w.now, w.arrival)
		return
	}
	w.preemptions += len(w.it.Preempted)
	prompts, context := 0, 0
	w.done = w.done[:0]
	for i := range w.it.Prefills {
		p := &w.it.Prefills[i]
		prompts += p.Tokens
		if p.Last {
			w.token(p.ID)
		}
	}
	for i := range w.it.Decodes {
		context += w.it.Decodes[i].Context
		w.token(w.it.Decodes[i].ID)
	}
	w.sequences += len(w.it.Decodes) + len(w.it.Prefills)
	w.now += 1e-3 * (22 + 0.3*float64(len(w.it.Decodes)) + 0.0007*float64(context) + 0.14*float64(prompts))
	if len(w.done) > 0 {
		var err error
		if w.answered, err = w.s.Finish(w.answered[:0], w.done...); err != nil {
			t.Fatal(err)
		}
		w.answers += len(w.answered)
		w.spare = append(w.spare, w.answered...)
	}
}

func (w *world) token(id int) {
	r := &w.requests[id]
	if r.generated++; r.generated == r.output {
		w.done = append(w.done, id)
	}
}

// BenchmarkShareGPT is 1,000 simulated seconds at 2 requests a second.
func BenchmarkShareGPT(b *testing.B) {
	for name := range systems(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			sequences := 0
			for range b.N {
				w := newWorld(systems(b)[name], 2)
				for w.now < 1000 {
					w.step(b)
				}
				sequences += w.sequences
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(sequences), "ns/sequence")
		})
	}
}

// Ensure that steps allocate nothing once arrays have grown, under traffic that
// preempts where memory is paged.
func TestStepsDoNotAllocate(t *testing.T) {
	for name, s := range systems(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(s, 1)
			w.closed = 80
			for range 100_000 {
				w.step(t)
			}
			answers := w.answers
			w.preemptions = 0
			allocations := testing.AllocsPerRun(1, func() {
				for range 5000 {
					w.step(t)
				}
			})
			require.Zero(t, allocations, "in 5,000 steps")
			require.Greater(t, w.answers, answers+50)
			if paged := !strings.HasPrefix(name, "orca") && name != "fastertransformer"; paged {
				require.Greater(t, w.preemptions, 10)
			}
		})
	}
}
