package sweep

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

func TestListsAreRead(t *testing.T) {
	for text, want := range map[string][]float64{
		"2, 0.5,1":     {2, 0.5, 1},
		"0.1:0.5:0.1":  {0.1, 0.2, 0.3, 0.4, 0.5},
		"1:2:0.3":      {1, 1.3, 1.6, 1.9},
		"3:3:1,0.5":    {3, 0.5},
		"0.1:0.3:0.1":  {0.1, 0.2, 0.3},
		"0.5:3:0.25":   {0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3},
		" ":            nil,
		"0.7:1:0.1,10": {0.7, 0.8, 0.9, 1, 10},
	} {
		got, err := ParseRates(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"a", "1,", "1:2", "1:2:3:4", "2:1:1", "1:2:0", "1:2:-1", "1:2:nan", "nan:2:1",
		"1:inf:1", "1:2:1e-12", "1-2"} {
		_, err := ParseRates(text)
		require.ErrorIs(t, err, ErrGrid, text)
	}
	seeds, err := ParseInts[uint64]("seeds", "7,1-3")
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 1, 2, 3}, seeds)
	for _, text := range []string{"a", "3-1", "-1", "1-", "1.5", "0-100000000", "18446744073709551615"} {
		_, err := ParseInts[uint64]("seeds", text)
		require.ErrorIs(t, err, ErrGrid, text)
	}
	require.Equal(t, []string{"a", "b"}, ParseSystems("a, b"))
	require.Equal(t, sim.Systems(), ParseSystems("all"))
}

func grid() Grid {
	return Grid{
		Base:    scenario.Scenario{Load: scenario.Load{Duration: 4}, Decoding: sim.Decoding{Samples: 1}},
		Systems: []string{"sosp", "vllm-v1"}, BlockSizes: []int{16}, Rates: []float64{1, 2}, Seeds: []uint64{1, 2},
	}
}

func open(t require.TestingT, g Grid) *Sweep {
	s, err := Open(g)
	require.NoError(t, err)
	return s
}

func TestBadGridsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Grid){
		"no system":      func(g *Grid) { g.Systems = nil },
		"no rate":        func(g *Grid) { g.Rates = nil },
		"no block size":  func(g *Grid) { g.BlockSizes = nil },
		"no seed":        func(g *Grid) { g.Seeds = nil },
		"twice":          func(g *Grid) { g.Systems = []string{"sosp", "vllm-v1", "sosp"} },
		"a rate of 0":    func(g *Grid) { g.Rates[0] = 0 },
		"below 0":        func(g *Grid) { g.Rates[0] = -1 },
		"no number":      func(g *Grid) { g.Rates[0] = math.NaN() },
		"forever":        func(g *Grid) { g.Rates[0] = math.Inf(1) },
		"no block":       func(g *Grid) { g.BlockSizes[0] = 0 },
		"another memory": func(g *Grid) { g.BlockSizes, g.Base.Server.NumGPUBlocks = []int{8, 16}, 900 },
		"too many":       func(g *Grid) { g.Seeds, _ = ParseInts[uint64]("", "1-99999") },
	} {
		g := grid()
		change(&g)
		_, err := Open(g)
		require.ErrorIs(t, err, ErrGrid, name)
	}
	g := grid()
	g.Base.Decoding = sim.Decoding{Samples: 2, Beam: true}
	_, err := Open(g) // Open checks all systems before any of them is run
	require.ErrorIs(t, err, sim.ErrConfig)
	require.ErrorContains(t, err, "vllm-v1, blocks of 16, 1 requests/s, seed 1: ")
	trace := write(t, t.TempDir(), "all-at-once.csv", "arrival,prompt,output\n0,10,2\n0,10,2\n")
	g = grid()
	g.Base.Trace = trace
	_, err = Open(g)
	require.ErrorIs(t, err, scenario.ErrScenario)
	require.ErrorContains(t, err, "no rate to change")
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func TestJobsAreInOneOrder(t *testing.T) {
	s := open(t, grid())
	var names []string
	for _, j := range s.Jobs {
		names = append(names, j.String())
	}
	require.Equal(t, []string{
		"sosp, blocks of 16, 1 requests/s, seed 1", "sosp, blocks of 16, 1 requests/s, seed 2",
		"sosp, blocks of 16, 2 requests/s, seed 1", "sosp, blocks of 16, 2 requests/s, seed 2",
		"vllm-v1, blocks of 16, 1 requests/s, seed 1", "vllm-v1, blocks of 16, 1 requests/s, seed 2",
		"vllm-v1, blocks of 16, 2 requests/s, seed 1", "vllm-v1, blocks of 16, 2 requests/s, seed 2",
	}, names)
	g := grid()
	slices.Reverse(g.Systems)
	slices.Reverse(g.Rates)
	slices.Reverse(g.Seeds)
	require.Equal(t, s.Jobs, open(t, g).Jobs)
}
