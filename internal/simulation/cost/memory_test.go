package cost

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type publishedPool struct {
	Publisher   string  `json:"publisher"`
	Version     string  `json:"version"`
	Source      string  `json:"source"`
	Note        string  `json:"note"`
	Model       string  `json:"model"`
	GPU         string  `json:"gpu"`
	Workers     int     `json:"workers"`
	Utilization float64 `json:"utilization"`
	Seqs        int     `json:"max_num_seqs"`
	Budget      int     `json:"max_num_batched_tokens"`
	DType       string  `json:"dtype"` // of the weights; absent: the model's
	Sorts       bool    `json:"sorts"` // the sampler sorts all logits
	Tokens      int     `json:"tokens"`
	GiB         float64 `json:"gib"` // of a GPU, where tokens are not published
}

func (p publishedPool) setup(t *testing.T) Setup {
	s, err := roofline(t, p.Model, p.GPU, p.Workers).Quantised(p.DType, "")
	require.NoError(t, err)
	s.Memory, s.Sequences, s.Sorts = Memory{Utilization: p.Utilization, Tokens: p.Budget}, p.Seqs, p.Sorts
	return s
}

func publishedPools(t *testing.T) (fitted, heldOut []publishedPool) {
	text, err := os.ReadFile("published/memory.json")
	require.NoError(t, err)
	var sources []struct {
		publishedPool
		Points []json.RawMessage `json:"points"`
	}
	require.NoError(t, json.Unmarshal(text, &sources))
	var all []publishedPool
	for _, s := range sources {
		for _, point := range s.Points {
			p := s.publishedPool
			require.NoError(t, json.Unmarshal(point, &p))
			p.Workers = max(1, p.Workers)
			all = append(all, p)
		}
	}
	key := func(p publishedPool) string {
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d|%g|%s|%s|%s", p.Model, p.GPU, p.Workers,
			p.Utilization, p.DType, p.Publisher, p.Version)))
	}
	slices.SortFunc(all, func(a, b publishedPool) int { return cmp.Compare(key(a), key(b)) })
	return alternate(all)
}

// Ensure that computed pool sizes are near the sizes in logs of vLLM V1. Constants were fitted to one half of these
// logs; the test checks both halves. -update writes memory.csv.
func TestPoolsOfVLLMV1(t *testing.T) {
	table := "publisher,version,model,weights,GPUs,part of the memory,sampler,half,tokens published,computed,error,note\n"
	fitted, heldOut := publishedPools(t)
	require.GreaterOrEqual(t, len(fitted)+len(heldOut), 20)
	var left, copies []float64 // bytes, and copies of all logits
	for i, p := range append(slices.Clone(fitted), heldOut...) {
		s := p.setup(t)
		blocks := pool(t, s)
		bytes := float64(s.blockBytes(1))
		tokens := cmp.Or(p.Tokens, int(p.GiB*(1<<30)/bytes))
		more := float64(blocks*16-tokens) * bytes
		half := "held out"
		if i < len(fitted) {
			half = "fitted"
			switch {
			case p.Note != "":
			case p.Sorts:
				copies = append(copies, sortedLogits+more/s.LLM.logitsBytes(p.Seqs))
			default:
				left = append(left, workspaceV1+more)
			}
		}
		sampler := ""
		if p.Sorts {
			sampler = "sorts"
		}
		off := float64(blocks*16)/float64(tokens) - 1
		table += fmt.Sprintf("%s,%q,%s,%s,%d x %s,%g,%s,%s,%d,%d,%+.1f %%,%s\n", p.Publisher, p.Version, p.Model,
			cmp.Or(p.DType, "16 bits"), p.Workers, p.GPU, p.Utilization, sampler, half, tokens, blocks*16, 100*off, p.Note)
		most := 0.05
		if p.Note != "" { // known to have used more
			most = 0.15
		}
		require.InDelta(t, 0, off, most)
	}
	require.InEpsilon(t, median(left), workspaceV1, 0.15, "%.0f bytes are left of the fitted half", left)
	require.InEpsilon(t, median(copies), sortedLogits, 0.02, "%.1f copies in the fitted half", copies)
	const file = "published/memory.csv"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(table), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), table, "run this test with -update")
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)/2]
}
