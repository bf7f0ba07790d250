package cost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startOfV1 returns startOf for servers of vLLM V1.
func startOfV1(e Engine) Engine {
	e.HalfTokens = 0
	return e
}

// v1Release is the release that versions of V1 are taken together in.
const v1Release = "0.10-0.20"

// v1Runs are NVIDIA's GPUs with compute capability 8.0 or more, for which V1 has the same kernels
// as for those it was measured on, of which nothing is published.
var v1Runs = []string{"a100-40gb", "a800-80gb", "h100-pcie-80gb", "h20-141gb", "l4", "l40s", "rtx-3090", "rtx-4090",
	"rtx-4090-d", "rtx-6000-ada", "rtx-a6000"}

// elsewhere returns the constants that all GPUs of a fit have in common, for other GPUs.
func (f *engineFit) elsewhere(t *testing.T, files map[string]engineFile) map[string]Engine {
	all := map[string]Engine{}
	for _, name := range v1Runs {
		e := f.common()
		gpu, err := OpenGPU(name)
		require.NoError(t, err)
		e.Processor = files["vllm"].Releases["0.7.3"][name].Processor // which limits H20 alone, on which it was counted
		// no point of V1 is of GPUs that PCIe links: the link's constants are those that were fitted on this GPU
		if gpu.WorkerLink <= 2*gpu.HostLink {
			link, ok := files["vllm"].Releases["0.7.3"][name]
			if !ok { // of L40S where no link of the GPU itself was measured
				link, ok = files["tensorrt-llm"].Releases["0.9.0"]["l40s"]
			}
			require.True(t, ok, name)
			e.WorkerLink, e.AllReduce = link.WorkerLink, link.AllReduce
		}
		all[name] = e
	}
	return all
}

// common returns the engine with the constants that all GPUs share.
func (f *engineFit) common() Engine {
	x := slices.Clone(f.x)
	clear(x[len(f.parts):])
	return f.engine(x, [3]int{0, 1, 1}).engine()
}

// withoutEach returns how far off the points of each GPU are if the constants are fitted without it.
func withoutEach(t *testing.T, g fitGroup) map[string]Fit {
	all := map[string]Fit{}
	for _, p := range g.points {
		if _, ok := all[p.GPU]; ok {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(g.points), func(o measurement) bool { return o.GPU == p.GPU })
		e := fitGroup{g.engine, others}.fit(t).common()
		fit, worst := errorsWith(t, slices.Concat(halves(p.Engine, p.Release, p.GPU)), e)
		t.Logf("%s without its points: %s, worst %s", p.GPU, fit, worst)
		all[p.GPU] = fit
	}
	return all
}

// withoutKinds returns how far off the points of each kind of models are if the constants are fitted without it.
func withoutKinds(t *testing.T) (all []kind) {
	for _, name := range []string{mixtures, fewBits} {
		k := kind{Name: name, Least: 1, Most: 1}
		for _, dtype := range []string{"", "fp8", "int8"} { // each alone, of weights in few bits
			is := func(p measurement) bool {
				s, err := p.Setup(DefaultEngine)
				require.NoError(t, err)
				return isKind(s.LLM, name) && (name == mixtures || p.DType == dtype)
			}
			if (dtype == "") != (name == mixtures) {
				continue
			}
			for _, g := range fitGroups(fittedHalves("")) {
				others := slices.DeleteFunc(slices.Clone(g.points), is)
				if g.engine != "vllm" || len(others) == len(g.points) || len(others) == 0 {
					continue
				}
				f := fitGroup{g.engine, others}.fit(t)
				for _, of := range f.pairs {
					for _, p := range slices.Concat(halves(g.engine, of.release, of.gpu)) {
						if !is(p) {
							continue
						}
						predicted, err := p.Predict(f.of(of))
						require.NoError(t, err)
						times := p.Seconds() / predicted
						k.Least, k.Most, k.Points = min(k.Least, times), max(k.Most, times), k.Points+1
					}
				}
			}
		}
		k.Least, k.Most = math.Floor(100*k.Least)/100, math.Ceil(100*k.Most)/100
		all = append(all, k)
	}
	return all
}

// Ensure that margins are wider for kinds of models of which other publishers have nothing, by the errors of their
// points if these are left out of the fit.
func TestMarginsOfKindsAreThoseOfLeavingThemOut(t *testing.T) {
	text, err := json.MarshalIndent(withoutKinds(t), "", "\t")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("published/kinds.json", append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile("published/kinds.json")
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(text), "run this test with -update")
}

// Ensure that the errors that are stated of GPUs without points are those of leaving each GPU
// out, and in the README.
func TestV1IsPredictedOnGPUsItWasNotFittedTo(t *testing.T) {
	i := slices.IndexFunc(fitGroups(fittedHalves("")), func(g fitGroup) bool { return publisher(g.points[0]) == "V1" })
	without := withoutEach(t, fitGroups(fittedHalves(""))[i])
	f, err := openEngine("vllm")
	require.NoError(t, err)
	stated := f.Elsewhere[v1Release].LeftOut
	require.Len(t, stated, len(without))
	text, err := os.ReadFile("published/README.md")
	require.NoError(t, err)
	for gpu, fit := range without {
		require.InDelta(t, fit.Median, stated[gpu].Median, 1e-3, gpu)
		require.InDelta(t, fit.Worst, stated[gpu].Worst, 1e-2, gpu)
		require.LessOrEqual(t, fit.Median, 0.15, gpu)
		row := fmt.Sprintf("| %s | %d | %.0f %% | %.0f %% |", gpu, fit.Points, 100*fit.Median, 100*fit.Worst)
		require.True(t, strings.Contains(string(text), row), row)
	}
	for _, gpu := range v1Runs {
		require.Contains(t, f.Elsewhere[v1Release].GPUs, gpu)
		of := engineOn(t, "vllm", gpu)
		require.Contains(t, of.String(),
			"vllm 0.10-0.20 on "+gpu+": not fitted on this GPU; constants as measured on a100-80gb, b200-180gb, "+
				"h100-80gb, h200-141gb")
	}
}

// Ensure that a release of several versions is as new as the last of them.
func TestARangeOfReleasesIsAsNewAsItsLast(t *testing.T) {
	require.Equal(t, 1, cmp.Compare(compareReleases(v1Release, "0.9.1"), 0))
	require.Equal(t, -1, cmp.Compare(compareReleases(v1Release, "0.21.0"), 0))
}

// Ensure that V1 on GPUs of which none of its points is published is hardly slower than what was
// measured of V0 there, which has more work on the host for each sequence.
func TestV1IsHardlySlowerThanWhatWasMeasuredOfV0(t *testing.T) {
	engines, err := openEngine("vllm")
	require.NoError(t, err)
	seen := 0
	for _, p := range publishedPoints() {
		e, ok := engines.Elsewhere[v1Release].GPUs[p.GPU]
		if p.Engine != "vllm" || p.Release != "0.7.3" || !ok || p.Excluded != "" {
			continue
		}
		v0 := p.Seconds()
		p.Budget = 8192
		v1, err := p.Predict(e)
		require.NoError(t, err)
		most := 1.25
		if p.GPU == "h20-141gb" && p.Prompt > 20000 {
			most = 1.45 // reads fast for what it computes, so attention of long prompts comes nearer to its peak
		}
		require.Less(t, v1, most*v0, "%s on %s, %s", p, p.GPU, p.Metric)
		seen++
	}
	require.Greater(t, seen, 150)
}
