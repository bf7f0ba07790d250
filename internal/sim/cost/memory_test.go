package cost

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A publishedPool is how many tokens of keys and values vLLM V1 stated that it had room for.
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
	Tokens      int     `json:"tokens"`
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
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d|%g", p.Model, p.GPU, p.Workers, p.Utilization)))
	}
	slices.SortFunc(all, func(a, b publishedPool) int { return cmp.Compare(key(a), key(b)) })
	for i, p := range all {
		if i%2 == 0 {
			fitted = append(fitted, p)
		} else {
			heldOut = append(heldOut, p)
		}
	}
	return fitted, heldOut
}

// Ensure that the pool of vLLM V1 is as large as its logs state, also where nothing was fitted to them, and that the
// README has both.
func TestPoolsOfVLLMV1(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	fitted, heldOut := publishedPools(t)
	var left []float64 // bytes
	for i, p := range append(slices.Clone(fitted), heldOut...) {
		s, err := New(p.Model, p.GPU, p.Workers)
		require.NoError(t, err)
		s.Memory, s.Sequences = Memory{Utilization: p.Utilization, Tokens: p.Budget}, p.Seqs
		blocks, _, err := s.Pool(16)
		require.NoError(t, err)
		half := "held out"
		if i < len(fitted) {
			half = "fitted"
			left = append(left, workspaceV1+float64(blocks*16-p.Tokens)*float64(s.blockBytes(1)))
		}
		off := float64(blocks*16)/float64(p.Tokens) - 1
		row := fmt.Sprintf("| %s | %s on %d x %s, %g | %s | %d | %d | %+.1f %% |", p.Publisher, p.Model, p.Workers, p.GPU,
			p.Utilization, half, p.Tokens, blocks*16, 100*off)
		t.Log(row)
		require.True(t, strings.Contains(string(readme), row), row)
		most := 0.05
		if p.Note != "" { // known to have used more
			most = 0.12
		}
		require.InDelta(t, 0, off, most)
	}
	slices.Sort(left)
	require.InEpsilon(t, left[(len(left)-1)/2], workspaceV1, 0.15, "%.0f MiB are left of the fitted half", left)
}
