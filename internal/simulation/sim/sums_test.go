package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/workload"
)

func TestAResultDoesNotKeepItsRun(t *testing.T) {
	freed := make(chan struct{})
	source := &list{{Prompt: 100, Output: 3}}
	runtime.AddCleanup(source, func(freed chan struct{}) { close(freed) }, freed)
	r := ran(t, Config{Server: Server{System: "sosp"}}, source)
	for waits := true; waits; { // go test ends it if the run is kept
		runtime.GC()
		select {
		case <-freed:
			waits = false
		default:
			runtime.Gosched()
		}
	}
	require.Equal(t, 1, r.Answered)
}

type witness struct {
	t       *rapid.T
	r       *run
	fastest float64
}

func (w *witness) Finished(float64, ...int) error         { return nil }
func (w *witness) Reforked(int, int, int, ...device.Pair) {}
func (w *witness) Observe(now float64, _ *serve.Iteration) error {
	require.GreaterOrEqual(w.t, now, w.fastest)
	w.fastest = now
	if c, ok := w.r.scheduler.(interface{ Check() error }); ok {
		require.NoError(w.t, c.Check())
	}
	return nil
}

func checkSums(t *rapid.T, r *run) {
	l := &r.requests
	again := requestTable{server: l.server, kind: l.kind, all: l.all}
	spare := map[int32]bool{}
	for _, at := range l.free {
		require.False(t, spare[at])
		spare[at] = true
	}
	families := map[int32]bool{}
	for at := range l.all {
		q := &l.all[at]
		if spare[int32(at)] {
			require.False(t, q.resident)
			continue
		}
		if q.resident {
			again.count(q, 1)
			families[q.group] = true
		}
	}
	require.Equal(t, len(families), l.requests)
	if q, ok := r.scheduler.(interface {
		Queues() (waiting, running, swapped []int)
	}); ok {
		_, running, _ := q.Queues()
		inMemory := []int{}
		for at := range l.all {
			if l.all[at].resident {
				inMemory = append(inMemory, at)
			}
		}
		require.ElementsMatch(t, running, inMemory)
	}
	require.Equal(t, again.sequences, l.sequences)
	require.Equal(t, again.tokens, l.tokens)
	require.Equal(t, again.reserved, l.reserved)
	require.Equal(t, again.neverUsed, l.neverUsed)
	require.Equal(t, again.emptySlots, l.emptySlots)
}

// drive serves all requests of a run, and calls check after each iteration.
func drive(t require.TestingT, r *run, iterate func() error, check func()) {
	for {
		require.NoError(t, r.arrive())
		if r.requests.live == 0 && r.clients.Done() {
			return
		}
		if r.requests.live == 0 {
			r.now = r.clients.Arrival()
			continue
		}
		require.NoError(t, iterate())
		check()
	}
}

// Ensure that the totals of the request table equal the sums over its requests after every iteration. The fractions
// of the memory must be from 0 to 1.
func TestMemoryAndRequestsAddUpAfterEveryIteration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := Config{
			Server: Server{
				System:    rapid.SampledFrom(Systems()).Draw(t, "system"),
				BlockSize: 4, MaxModelLen: 64,
				NumGPUBlocks: rapid.IntRange(4, 60).Draw(t, "blocks"),
				NumCPUBlocks: 400, MaxNumBatchedTokens: 80, MaxNumSeqs: rapid.IntRange(4, 12).Draw(t, "seqs"),
				Swap: rapid.Bool().Draw(t, "swap"), NoCaching: rapid.Bool().Draw(t, "caching"),
			},
			Cost: paperCost(t),
			Seed: 1,
		}
		kind, err := Lookup(config.Server.System)
		require.NoError(t, err)
		config.Decoding.Samples = rapid.IntRange(1, 3).Draw(t, "samples")
		if kind.Beams {
			config.Decoding.Beam = rapid.Bool().Draw(t, "beam")
			config.Decoding.Replace = rapid.Float64Range(0, 1).Draw(t, "replace")
		}
		if kind.Drafts {
			config.Decoding.Drafts = rapid.IntRange(0, 3).Draw(t, "drafts")
			config.Decoding.Accept = 0.5
		}
		var source list
		at := 0.0
		for range rapid.IntRange(0, 25).Draw(t, "requests") {
			at += rapid.Float64Range(0, 0.3).Draw(t, "gap")
			source = append(source, workload.Request{
				Arrival: at,
				Prompt:  rapid.IntRange(1, 50).Draw(t, "prompt"), Output: rapid.IntRange(1, 30).Draw(t, "output"),
			})
		}
		n := len(source)
		r, err := newRun(config, &source)
		require.NoError(t, err)
		r.observer = &witness{t: t, r: r}
		drive(t, r, r.iterate, func() { checkSums(t, r) })
		result := r.result()
		require.Equal(t, n, result.Arrived)
		require.Equal(t, n, result.Answered+result.Refused+result.Dropped)
		require.Zero(t, r.requests.sequences)
		w := result.Window
		for _, part := range []float64{w.Tokens, w.Reservation, w.Internal, w.External} {
			require.True(t, part >= -1e-9 && part <= 1+1e-9, "%+v", w)
		}
		if used := r.scheduler.Usage().Used; !r.readsTokens {
			require.Zero(t, used)
		}
	})
}

func TestLittlesLawHolds(t *testing.T) {
	r := ran(t, Config{Server: Server{System: "sosp"}}, poisson(t, "sharegpt", 1, 2000, 0, 1))
	require.Equal(t, r.Arrived, r.Answered)
	// Little's law holds for the mean over time. The window has the mean over iterations, in which a long iteration
	// counts as much as a short one. Therefore the two sides may differ by 5 %.
	inside := float64(r.Answered) * r.EndToEnd.Mean / r.Seconds
	require.InEpsilon(t, inside, r.Window.Requests+r.Window.Waiting, 0.05)
}

func TestMemoryDoesNotGrowWithTheRequests(t *testing.T) {
	heap := func(n int) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := ran(t, Config{Server: Server{System: "sosp"}}, poisson(t, "alpaca", 25, 0, n, 1))
		require.Equal(t, n, r.Answered)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	short, long := heap(2000), heap(12_000)
	require.Less(t, long, short+short/2+100_000, "bytes allocated in all for 2,000 and for 12,000 requests")
}

// BenchmarkThousandSeconds simulates 1,000 seconds of ShareGPT at 2 requests/s with the paper's 983 blocks.
func BenchmarkThousandSeconds(b *testing.B) {
	for _, system := range Systems() {
		b.Run(system, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_, err := Run(context.Background(), Config{Server: Server{System: system}, Cost: paperCost(b), Until: 1000,
					Stop: true},
					poisson(b, "sharegpt", 2, 0, 0, 1))
				require.NoError(b, err)
			}
		})
	}
}

// endless is a source of requests with the lengths of ShareGPT. A request arrives only when the test asks for it.
type endless struct {
	lengths workload.Lengths
	rng     *rand.Rand
}

func (e *endless) Next(r *workload.Request) error {
	prompt, output := e.lengths.Draw(e.rng)
	*r = workload.Request{Arrival: math.Inf(1), Prompt: prompt, Output: output}
	return nil
}

// Ensure that iterations allocate almost nothing once the arrays have grown, even with preemptions.
func TestIterationsDoNotAllocate(t *testing.T) {
	lengths, _, err := workload.Named("sharegpt")
	require.NoError(t, err)
	for _, system := range Systems() {
		t.Run(system, func(t *testing.T) {
			r, err := newRun(Config{Server: Server{System: system}, Cost: paperCost(t)},
				&endless{lengths, rand.New(rand.NewPCG(1, 1))})
			require.NoError(t, err)
			iterate := func(n int) {
				for range n {
					for r.requests.live < 80 {
						r.clients.next.Arrival = 0
						if err := r.arrive(); err != nil {
							t.Fatal(err)
						}
					}
					if err := r.iterate(); err != nil {
						t.Fatal(err)
					}
				}
			}
			iterate(20_000)
			before := r.r
			// Maps and arrays may still grow now and then.
			require.LessOrEqual(t, testing.AllocsPerRun(1, func() { iterate(3000) }), 30.0, "in 3,000 iterations")
			require.Greater(t, r.r.Answered, before.Answered+30)
			if r.kind.Memory == Paged {
				require.Greater(t, r.r.Recomputed, before.Recomputed+5)
			}
		})
	}
}
