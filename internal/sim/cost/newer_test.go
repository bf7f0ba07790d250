package cost

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the margin of an old release is what the used half of the newer one's points leaves open, and holds the
// other half.
func TestTheMarginOfAnOldReleaseIsThatOfItsSuccessor(t *testing.T) {
	newer, points := readNewer(), readPublished("tensorrt-llm-1")
	key := func(p measurement) string {
		return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s|%s|%d|%d", p.Model, p.GPU, p.Prompt, p.Output)))
	}
	slices.SortFunc(points, func(a, b measurement) int { return cmp.Compare(key(a), key(b)) })
	least, most, held, within := 1.0, 1.0, 0, 0
	for i, p := range points {
		old := engineOn(t, "tensorrt-llm-0.9.0", p.GPU)
		simulated, err := p.Predict(old.Engine)
		require.NoError(t, err)
		times := p.Seconds() / simulated
		if i%2 == 0 {
			least, most = min(least, times), max(most, times)
			continue
		}
		held++
		if newer.Margin.Least <= times && times <= newer.Margin.Most {
			within++
		}
	}
	require.Equal(t, math.Floor(100*least)/100, newer.Margin.Least)
	require.Equal(t, math.Ceil(100*most)/100, newer.Margin.Most)
	require.Equal(t, len(points)-held, newer.Margin.Points)
	require.GreaterOrEqual(t, float64(within), 0.8*float64(held))

	fitted := engineOn(t, "tensorrt-llm", "h100-80gb")
	require.Equal(t, "tensorrt-llm 1.0", fitted.Name)
	fitted = engineOn(t, "tensorrt-llm", "a100-80gb")
	s := roofline(t, "llama-3-8b", "a100-80gb", 1).On(fitted)
	require.Contains(t, timed(t, s).Describe(), "iterations of release 1.0 took "+
		fmt.Sprintf("%.2f to %.2f", newer.Margin.Least, newer.Margin.Most))
	require.Contains(t, timed(t, s).Describe(), "this release is old, and mostly too slow")
	_, err := OpenEngine("sglang", "h100-80gb")
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "vllm stands nearest")
}

// Ensure that tensorrt-llm-1.csv has the points of TensorRT-LLM 1.0 and their predictions; -update writes it.
func TestPredictionsOfOfflineLoads(t *testing.T) {
	table := "server,prompt,answer,requests,half,tokens/s published,predicted,error of the time\n"
	for _, gpu := range []string{"h100-80gb", "h200-141gb"} {
		f := engineOn(t, "tensorrt-llm-1.0", gpu)
		fitted, heldOut := halves("tensorrt-llm", "1.0", gpu)
		for i, p := range slices.Concat(fitted, heldOut) {
			half := "fitted"
			if i >= len(fitted) {
				half = "held out"
			}
			var err error
			p.Predicted, err = p.Predict(f.Engine)
			require.NoError(t, err)
			table += fmt.Sprintf("%s on %d x %s,%d,%d,%d,%s,%.0f,%.0f,%+.0f %%\n", p.Model, p.Workers, gpu, p.Prompt, p.Output,
				p.Batch, half, p.Value, p.Value*p.Seconds()/p.Predicted, 100*p.Error())
		}
	}
	requireTable(t, "tensorrt-llm-1", table)
}
