package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serve"
	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/vllm/device"
)

// worked sums up what the iterations of a run compute, by how much that is. Requests that come at once are scheduled
// alike however long iterations take, so the sums give the time of the run with any constants.
type worked struct {
	model *cost.Model
	sums  map[[3]int]*[5]float64 // iterations, sequences, context, prompt tokens and pairs of tokens
}

// Observe adds an iteration.
func (w *worked) Observe(_ float64, it *serve.Iteration) error {
	var seqs, context, prompt, pairs float64
	for _, p := range it.Prefills {
		prompt += float64(p.Tokens - p.Cached)
		end, start := float64(p.Start+p.Tokens), float64(p.Start+p.Cached)
		pairs += (end*(end+1) - start*(start+1)) / 2
		if p.Last {
			seqs += float64(p.Seqs)
		}
	}
	for _, d := range it.Decodes {
		seqs += float64(d.Seqs)
		context += float64(d.Context)
	}
	steps := func(n, base float64) int { return int(math.Round(math.Log(n+1) / math.Log(base))) }
	key := [3]int{steps(seqs, 1.5), steps(prompt, 3), 0}
	if seqs > 0 {
		key[2] = steps(context/seqs, 1.7)
	}
	if w.sums[key] == nil {
		w.sums[key] = &[5]float64{}
	}
	for i, v := range []float64{1, seqs, context, prompt, pairs} {
		w.sums[key][i] += v
	}
	return nil
}

func (w *worked) Reforked(int, int, int, ...device.Pair) {}
func (w *worked) Finished(float64, ...int) error         { return nil }

// means returns the sums as iterations, and the means of the others.
func (w *worked) means() (all [][5]int64) {
	for _, s := range w.sums {
		var row [5]int64
		for i, v := range s {
			if i > 0 {
				v /= s[0]
			}
			row[i] = int64(math.Round(v))
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b [5]int64) int { return slices.Compare(a[:], b[:]) })
	return all
}

// seconds returns how long the means take.
func (w *worked) seconds() (sum float64) {
	for _, r := range w.means() {
		sum += float64(r[0]) * w.model.Seconds(cost.Work{Seqs: int(r[1]), Context: int(r[2]), Prompt: int(r[3]),
			PromptContext: r[4]})
	}
	return sum
}

// Ensure that TensorRT-LLM 1.0's points are predicted from the iterations of the simulated scheduler, and that the sums
// of these take as long as the run; -update writes them.
func TestIterationsOfOfflineLoads(t *testing.T) {
	const file = "../cost/published/tensorrt-llm-1.json"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var sources []struct {
		Points []map[string]any `json:"points"`
	}
	require.NoError(t, json.Unmarshal(text, &sources))
	seen := 0
	for _, p := range sources[0].Points {
		number := func(name string) int { n, _ := p[name].(float64); return int(n) }
		if !*update && !level.Long() && (number("prompt")+number("output") > 256 || number("workers") > 1) {
			continue
		}
		plan, err := Open(Scenario{Model: p["model"].(string), GPU: p["gpu"].(string), Workers: number("workers"),
			Engine: "tensorrt-llm-0.9.0", Weights: "fp8", KV: "fp8", InputLen: number("prompt"), OutputLen: number("output"),
			Requests: number("batch"), AtOnce: true, MemoryUtilization: 0.95, Seed: 1,
			Server: sim.Server{MaxNumSeqs: 2048, MaxNumBatchedTokens: 8192, MaxModelLen: 24000}})
		require.NoError(t, err)
		w := &worked{model: plan.Model, sums: map[[3]int]*[5]float64{}}
		r, err := plan.Run(context.Background(), func(serve.Scheduler) (sim.Observer, error) { return w, nil }, nil)
		require.NoError(t, err)
		require.InEpsilon(t, r.Seconds, w.seconds(), 0.00025, "%v", p) // rounded in cost/published/README.md
		work, err := json.Marshal(w.means())
		require.NoError(t, err)
		t.Logf("%d sums, %.4f, %.0f tokens/s", len(w.sums), w.seconds()/r.Seconds, float64(r.Generated)/r.Seconds)
		if *update {
			p["work"] = w.means()
			continue
		}
		stated, err := json.Marshal(p["work"])
		require.NoError(t, err)
		require.JSONEq(t, string(stated), string(work))
		seen++
	}
	if *update {
		require.NoError(t, os.WriteFile(file, withWork(t, text, sources[0].Points), 0o644))
		return
	}
	require.Positive(t, seen)
}

// withWork returns the file with the points' work, a line for each.
func withWork(t *testing.T, text []byte, points []map[string]any) []byte {
	head, _, ok := strings.Cut(string(text), "\t\t{")
	require.True(t, ok)
	var lines []string
	for _, p := range points {
		line, err := json.Marshal(p)
		require.NoError(t, err)
		lines = append(lines, "\t\t"+string(line))
	}
	return fmt.Appendf(nil, "%s%s\n\t]}\n]\n", head, strings.Join(lines, ",\n"))
}
