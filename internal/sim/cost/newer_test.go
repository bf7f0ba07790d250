package cost

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A newerPoint is the throughput of the newer release and of the simulated one.
type newerPoint struct {
	Model     string  `json:"model"`
	GPU       string  `json:"gpu"`
	Workers   int     `json:"workers"`
	Prompt    int     `json:"prompt"`
	Output    int     `json:"output"`
	Requests  int     `json:"requests"`
	Published float64 `json:"tokens_per_s"`
	Simulated float64 `json:"simulated"`
}

// Ensure that the margin of an old release is what the used half of the newer one's points leaves open, and holds the
// other half.
func TestTheMarginOfAnOldReleaseIsThatOfItsSuccessor(t *testing.T) {
	var file struct {
		newerRelease
		Points []newerPoint `json:"points"`
	}
	require.NoError(t, json.Unmarshal(newerFile, &file))
	key := func(p newerPoint) string {
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d|%d", p.Model, p.GPU, p.Prompt, p.Output)))
	}
	slices.SortFunc(file.Points, func(a, b newerPoint) int { return cmp.Compare(key(a), key(b)) })
	least, most, held, within := 1.0, 1.0, 0, 0
	for i, p := range file.Points {
		times := p.Simulated / p.Published
		if i%2 == 0 {
			least, most = min(least, times), max(most, times)
			continue
		}
		held++
		if file.Margin.Least <= times && times <= file.Margin.Most {
			within++
		}
	}
	require.Equal(t, math.Floor(100*least)/100, file.Margin.Least)
	require.Equal(t, math.Ceil(100*most)/100, file.Margin.Most)
	require.Equal(t, len(file.Points)-held, file.Margin.Points)
	require.GreaterOrEqual(t, float64(within), 0.8*float64(held))

	fitted, err := OpenEngine("tensorrt-llm", "h100-80gb")
	require.NoError(t, err)
	s := roofline(t, "llama-3-8b", "h100-80gb", 1).On(fitted)
	require.Contains(t, timed(t, s).Describe(), "iterations of release 1.0 took "+
		fmt.Sprintf("%.2f to %.2f", file.Margin.Least, file.Margin.Most))
	require.Contains(t, timed(t, s).Describe(), "this release is old, and mostly too slow")
	_, err = OpenEngine("sglang", "h100-80gb")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "vllm stands nearest")
}
