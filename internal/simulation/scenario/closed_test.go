package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// Ensure that simulated closed loops differ from published measurements by at most 20 %. The constants were fitted
// in package cost, without the scheduler.
func TestClosedLoopsOfVLLMV1TakeAsLongAsPublished(t *testing.T) {
	runs := 0
	var points []cost.Published
	for _, gpu := range []string{"b200-180gb", "h100-80gb", "h200-141gb"} {
		points = append(points, cost.HeldOut(gpu)...)
	}
	for i, p := range points {
		if p.Metric != "closed_request_ms" || p.Output > 1100 || i%16 != 0 {
			continue
		}
		path := filepath.Join(t.TempDir(), "requests.csv")
		n := 6 * p.Batch
		require.NoError(t, os.WriteFile(path,
			[]byte("arrival,prompt,output\n"+strings.Repeat(fmt.Sprintf("0,%d,%d\n", p.Prompt, p.Output), n)), 0o600))
		r, err := Run(context.Background(), Scenario{
			Machine: Machine{Model: p.Model, GPU: p.GPU, Workers: p.Workers,
				Weights: strings.TrimPrefix(p.DType, "bf16"), KV: p.KV},
			Load: Load{Trace: path}, Clients: Clients{MaxConcurrency: p.Batch},
			Server: sim.Server{System: "vllm-v1", MaxNumBatchedTokens: p.Budget, MaxModelLen: p.Prompt + p.Output,
				NoCaching: true},
		})
		require.NoError(t, err)
		require.Equal(t, n, r.Answered)
		t.Logf("%s on %s: %.2f of the published time", p, p.GPU, r.EndToEnd.Mean/p.Seconds())
		require.InDelta(t, 1, r.EndToEnd.Mean/p.Seconds(), 0.2, p)
		runs++
	}
	require.Equal(t, 8, runs, "as many as cost/published/README.md says")
}
