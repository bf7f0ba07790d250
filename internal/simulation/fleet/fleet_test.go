package fleet

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

func model(t testing.TB, gpu string) (*cost.Model, sim.Server) {
	t.Helper()
	setup, err := cost.New("llama-3-8b", gpu, 1)
	require.NoError(t, err)
	m, err := setup.Model(16)
	require.NoError(t, err)
	return m, sim.Server{System: "vllm-v1", NumGPUBlocks: 2000, MaxModelLen: 4096}.Complete()
}

func replicas(t testing.TB, n int, gpu string) Kind {
	t.Helper()
	m, server := model(t, gpu)
	return Kind{Name: gpu, Count: n, Server: server, Cost: m}
}

func talks(t testing.TB, rate float64, sessions int) workload.Source {
	t.Helper()
	lengths, _, err := workload.Named("sharegpt")
	require.NoError(t, err)
	first, err := workload.Gamma(lengths, rate, 1, 1, 0, sessions)
	require.NoError(t, err)
	s, err := workload.Conversations(first, lengths, workload.Talk{Turns: 4, Think: 5}, 1, 4096)
	require.NoError(t, err)
	return s
}

func singles(t testing.TB, name string, rate float64, count int) workload.Source {
	t.Helper()
	lengths, _, err := workload.Named(name)
	require.NoError(t, err)
	s, err := workload.Gamma(lengths, rate, 1, 1, 0, count)
	require.NoError(t, err)
	return s
}

func run(t testing.TB, c Config, s workload.Source) *Result {
	t.Helper()
	r, err := Run(context.Background(), c, s)
	require.NoError(t, err)
	return r
}

// Ensure that a fleet of one replica has the same results as a server, to the last digit.
func TestAFleetOfOneIsAServer(t *testing.T) {
	for _, c := range []struct {
		name           string
		source         func() workload.Source
		maxConcurrency int
	}{
		{"open loop", func() workload.Source { return singles(t, "sharegpt", 8, 300) }, 0},
		{"closed loop", func() workload.Source { return singles(t, "sharegpt", 1000, 200) }, 12},
		{"conversations", func() workload.Source { return talks(t, 2, 60) }, 0},
	} {
		for _, router := range Routers() {
			t.Run(c.name+", "+string(router), func(t *testing.T) {
				k := replicas(t, 1, "l4")
				want, err := sim.Run(context.Background(), sim.Config{Server: k.Server, Cost: k.Cost,
					MaxConcurrency: c.maxConcurrency},
					c.source())
				require.NoError(t, err)
				got := run(t, Config{Kinds: []Kind{k}, Router: router, MaxConcurrency: c.maxConcurrency}, c.source())
				require.Equal(t, want.Answered, got.Answered)
				require.Equal(t, want.Iterations, got.Iterations)
				require.Equal(t, want.Hits, got.Hits)
				require.Equal(t, want.EndToEnd, got.EndToEnd)
				require.Equal(t, want.TTFT, got.TTFT)
				require.Equal(t, want.Seconds, got.Seconds)
			})
		}
	}
}

func TestAResultDoesNotKeepItsFleet(t *testing.T) {
	freed := make(chan struct{})
	source := &struct{ workload.Source }{singles(t, "sharegpt", 8, 10)}
	runtime.AddCleanup(source, func(freed chan struct{}) { close(freed) }, freed)
	r := run(t, Config{Kinds: []Kind{replicas(t, 2, "l4")}, Router: "random"}, source)
	for waits := true; waits; { // go test ends it if the run is kept
		runtime.GC()
		select {
		case <-freed:
			waits = false
		default:
			runtime.Gosched()
		}
	}
	require.Equal(t, 10, r.Answered)
}

func TestRoundRobinSharesRequestsOut(t *testing.T) {
	r := run(t, Config{Kinds: []Kind{replicas(t, 3, "l4")}, Router: RoundRobin}, singles(t, "alpaca", 20, 300))
	for _, p := range r.Replicas {
		require.Equal(t, 100, p.Answered)
	}
}

// Ensure that a router with knowledge of the replicas' load gives a shorter tail latency than a random choice does.
func TestTheLessLoadedGetMore(t *testing.T) {
	kinds := []Kind{replicas(t, 2, "l4"), replicas(t, 2, "h100-80gb")}
	random := run(t, Config{Kinds: kinds, Router: Random}, singles(t, "sharegpt", 25, 600))
	for _, router := range []Router{LeastLoaded, PowerOfTwo} {
		r := run(t, Config{Kinds: kinds, Router: router}, singles(t, "sharegpt", 25, 600))
		require.Equal(t, 600, r.Answered)
		require.Greater(t, r.Replicas[2].Answered+r.Replicas[3].Answered, r.Replicas[0].Answered+r.Replicas[1].Answered)
		require.Less(t, r.EndToEnd.P99, random.EndToEnd.P99, router)
	}
}

// Ensure that the prefix router sends the turns of a conversation to the replica with its cached blocks. If the
// router gets the cache events late, fewer blocks must be found.
func TestPrefixAwareRoutingFindsWhatIsCached(t *testing.T) {
	hits := func(router Router, delay float64) float64 {
		r := run(t, Config{Kinds: []Kind{replicas(t, 4, "l4")}, Router: router, EventDelay: delay}, talks(t, 3, 150))
		require.Equal(t, r.Arrived, r.Answered)
		return r.HitRate()
	}
	random, prefix, late := hits(Random, 0), hits(PrefixAware, 0), hits(PrefixAware, 60)
	require.Greater(t, prefix, 1.5*random)
	require.Less(t, late, prefix)
}

func TestWhatIsNoFleetIsRefused(t *testing.T) {
	k := replicas(t, 1, "l4")
	many := k
	many.Count = 65
	for _, c := range []struct {
		name    string
		config  Config
		wantErr string
	}{
		{"no replica", Config{Router: Random}, "0 replicas"},
		{"too many", Config{Kinds: []Kind{many}, Router: Random}, "65 replicas"},
		{"no router", Config{Kinds: []Kind{k}, Router: "best"}, "want random, round-robin"},
		{"a delay below 0", Config{Kinds: []Kind{k}, Router: Random, EventDelay: -1}, "at least 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(context.Background(), c.config, singles(t, "alpaca", 1, 1))
			require.ErrorIs(t, err, sim.ErrConfig)
			require.ErrorContains(t, err, c.wantErr)
		})
	}
}
