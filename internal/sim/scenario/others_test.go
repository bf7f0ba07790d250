package scenario

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/cost"
)

var update = flag.Bool("update", false, "write the tables and margins anew")

// An otherPoint is a server under a load that nothing was fitted to, and what was published of it; 0: not published.
type otherPoint struct {
	Publisher string `json:"publisher"`
	Version   string `json:"version"`
	GPU       string `json:"gpu"`
	Excluded  string `json:"excluded"` // why it says nothing of the GPU

	Model      string  `json:"model"`
	Weights    string  `json:"weights"` // their type; absent: the model's
	Workers    int     `json:"workers"`
	Requests   int     `json:"requests"`
	Clients    int     `json:"clients"` // 0: all at once, or at Rate
	Rate       float64 `json:"rate"`
	Prompt     int     `json:"prompt"`
	Output     int     `json:"output"`
	RangeRatio float64 `json:"range_ratio"` // assumed where only means are published

	Seconds   float64 `json:"seconds"` // of all requests
	PerSecond float64 `json:"requests_per_s"`
	FirstMean float64 `json:"ttft_mean_ms"`
	FirstP50  float64 `json:"ttft_p50_ms"`
	TPOT      float64 `json:"tpot_mean_ms"`
}

// otherPoints returns those of published/others.json in two halves: of each publisher on a GPU, ordered by the SHA-256
// of their loads, the first, the third and so on are used.
func otherPoints(t *testing.T) (used, heldOut []otherPoint) {
	text, err := os.ReadFile("../cost/published/others.json")
	require.NoError(t, err)
	var sources []struct {
		otherPoint
		Points []json.RawMessage `json:"points"`
	}
	require.NoError(t, json.Unmarshal(text, &sources))
	servers := map[string][]otherPoint{}
	for _, s := range sources {
		for _, point := range s.Points {
			p := s.otherPoint
			require.NoError(t, json.Unmarshal(point, &p))
			p.Workers = max(1, p.Workers)
			servers[p.Publisher+p.GPU] = append(servers[p.Publisher+p.GPU], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		all := servers[name]
		key := func(p otherPoint) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(p.load()))) }
		slices.SortFunc(all, func(a, b otherPoint) int { return cmp.Compare(key(a), key(b)) })
		for i, p := range all {
			if i%2 == 0 {
				used = append(used, p)
			} else {
				heldOut = append(heldOut, p)
			}
		}
	}
	return used, heldOut
}

// load describes the server and its load.
func (p otherPoint) load() string {
	how := fmt.Sprintf("%d at once", p.Requests)
	if p.Clients > 0 {
		how = fmt.Sprintf("%d clients", p.Clients)
	} else if p.Rate > 0 {
		how = fmt.Sprintf("%g/s", p.Rate)
	}
	return fmt.Sprintf("%s on %d x %s, %s of %d + %d", strings.TrimSpace(p.Model+" "+p.Weights), p.Workers, p.GPU, how,
		p.Prompt, p.Output)
}

// A quantity is what was published of a point and what is simulated, in s.
type quantity struct {
	name                           string
	published, likely, least, most float64
}

func (q quantity) within() bool { return q.least <= q.published && q.published <= q.most }

func (q quantity) String() string {
	if q.likely > 2 {
		return fmt.Sprintf("%s,%.4g,%.4g,%.4g,%.4g,s", q.name, q.published, q.likely, q.least, q.most)
	}
	return fmt.Sprintf("%s,%.3g,%.3g,%.3g,%.3g,ms", q.name, 1e3*q.published, 1e3*q.likely, 1e3*q.least, 1e3*q.most)
}

// simulate returns the quantities of a point. The range is that of the margin.
func (p otherPoint) simulate(t *testing.T, margin cost.Margin) (all []quantity) {
	n := cmp.Or(p.Requests, max(20, 8*p.Clients))
	plan, err := Open(Scenario{Model: p.Model, GPU: p.GPU, Workers: p.Workers, Engine: "vllm", Weights: p.Weights, InputLen: p.Prompt,
		OutputLen: p.Output, RangeRatio: p.RangeRatio, Requests: n, MaxConcurrency: p.Clients, Rate: p.Rate,
		AtOnce: p.Rate == 0, Seed: 1, Server: sim.Server{NoCaching: true}})
	require.NoError(t, err)
	run := func(times, first float64) *sim.Result {
		r, err := plan.Within(times, first/1000).Run(context.Background(), nil, nil)
		require.NoError(t, err)
		require.Equal(t, n, r.Answered, p.load())
		return r
	}
	likely := run(1, margin.First.Likely)
	least, most := run(margin.Least, margin.First.Least), run(margin.Most, margin.First.Most)
	add := func(name string, published float64, of func(r *sim.Result) float64) {
		if published > 0 {
			all = append(all, quantity{name, published, of(likely), of(least), of(most)})
		}
	}
	whole := func(r *sim.Result) float64 { return r.Seconds }
	add("all", p.Seconds, whole)
	if p.PerSecond > 0 {
		add("all", float64(n)/p.PerSecond, whole)
	}
	add("token", p.TPOT/1000, func(r *sim.Result) float64 { return r.TPOT.Mean })
	add("first", p.FirstMean/1000, func(r *sim.Result) float64 { return r.TTFT.Mean })
	add("first", p.FirstP50/1000, func(r *sim.Result) float64 { return r.TTFT.P50 })
	return all
}

// light reports whether first tokens hardly wait for other requests.
func (p otherPoint) light() bool {
	return p.Workers == 1 && (0 < p.Clients && p.Clients <= 8 || 0 < p.Rate && p.Rate <= 8)
}

// fewPoints is how many points of a GPU say nothing of others on it.
const fewPoints = 4

// marginOf returns the margin that the used half leaves open.
func marginOf(t *testing.T, used []otherPoint) (first cost.FirstToken, gpus map[string]cost.Margin,
	elsewhere cost.Margin) {
	type factors struct {
		all        []float64
		publishers []string
	}
	servers, firsts := map[string]*factors{}, map[string][]float64{}
	for _, p := range used {
		for _, q := range p.simulate(t, cost.Margin{Least: 1, Most: 1}) {
			if q.name == "first" && p.light() {
				firsts[p.Publisher] = append(firsts[p.Publisher], 1000*(q.published-q.likely))
			}
			if q.name == "first" || p.Excluded != "" || p.Weights != "" {
				continue
			}
			for _, on := range []string{p.GPU, ""} {
				f := cmp.Or(servers[on], &factors{})
				f.all = append(f.all, q.published/q.likely)
				if !slices.Contains(f.publishers, p.Publisher) {
					f.publishers = append(f.publishers, p.Publisher)
				}
				servers[on] = f
			}
		}
	}
	gpus = map[string]cost.Margin{}
	for on, f := range servers {
		m := cost.Margin{Points: len(f.all), Publishers: f.publishers,
			Least: math.Floor(100*min(1, slices.Min(f.all))) / 100, Most: math.Ceil(100*max(1, slices.Max(f.all))) / 100}
		switch {
		case on == "":
			elsewhere = m
		case len(f.all) >= fewPoints:
			gpus[on] = m
		}
	}
	var medians []float64
	for _, name := range slices.Sorted(maps.Keys(firsts)) {
		slices.Sort(firsts[name])
		medians = append(medians, firsts[name][(len(firsts[name])-1)/2])
		first.Publishers = append(first.Publishers, name)
		first.Points += len(firsts[name])
	}
	slices.Sort(medians)
	first.Least, first.Most = max(0, math.Round(medians[0])), math.Round(medians[len(medians)-1])
	first.Likely = math.Round((medians[(len(medians)-1)/2] + medians[len(medians)/2]) / 2)
	return first, gpus, elsewhere
}

// Ensure that what answers say of their own margin is what servers of other publishers leave open, that it holds at
// least 80 % of the half that it does not rest on, and that others.csv has every point. LLM_TEST_LONG=1 simulates all
// of them. -update writes margins.json, and others.csv if margins.json is as it should be.
func TestServersOfOtherPublishersAreWithinTheMargin(t *testing.T) {
	used, heldOut := otherPoints(t)
	const file = "../cost/published/others.csv"
	table := "publisher,vLLM,load,half,quantity,published,simulated,least,most,unit,within\n"
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	long := *update || os.Getenv("LLM_TEST_LONG") != ""
	if long {
		first, gpus, elsewhere := marginOf(t, used)
		text, err := json.MarshalIndent(map[string]any{"engine": "vllm 0.10-0.20", "first_token": first, "gpus": gpus,
			"elsewhere": elsewhere}, "", "\t")
		require.NoError(t, err)
		path := "../cost/published/margins.json"
		stated, err := os.ReadFile(path)
		require.NoError(t, err)
		if *update && string(stated) != string(text)+"\n" {
			require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644))
			t.Skip("margins.json is written: run it again, with -update")
		}
		require.JSONEq(t, string(stated), string(text))
	}
	held, within, points := map[string]int{}, map[string]int{}, 0
	for i, p := range append(slices.Clone(used), heldOut...) {
		if !long && (i%9 != 0 || p.Requests > 200) {
			continue
		}
		half := "used"
		if i >= len(used) {
			half = "held out"
		}
		plan, err := Open(Scenario{Model: p.Model, GPU: p.GPU, Workers: p.Workers, Engine: "vllm", Weights: p.Weights})
		require.NoError(t, err)
		rows := ""
		for _, q := range p.simulate(t, *plan.Setup.Margin()) {
			name := half
			if p.Excluded != "" {
				name = "excluded"
			}
			rows += fmt.Sprintf("%s,%q,%q,%s,%s,%t\n", p.Publisher, p.Version, p.load(), name, q, q.within())
			if half == "held out" && p.Excluded == "" {
				held[q.name]++
				if q.within() {
					within[q.name]++
				}
			}
		}
		require.True(t, *update || strings.Contains(string(want), rows), "others.csv has other rows than\n%s", rows)
		table += rows
		points++
	}
	t.Logf("%d points; of the held-out half %v within the margin, of %v", points, within, held)
	if !long {
		require.Greater(t, points, 5)
		return
	}
	all, inside := 0, 0
	for name, n := range held {
		all, inside = all+n, inside+within[name]
	}
	require.GreaterOrEqual(t, float64(inside), 0.8*float64(all))
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(table), 0o644))
		return
	}
	readme, err := os.ReadFile("../cost/published/README.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(readme), fmt.Sprintf("%d of %d quantities of the held-out half", inside, all)),
		"%d of %d", inside, all)
}
