package scenario_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/scenario"
)

func TestVaryReadsATraceOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv")
	require.NoError(t, os.WriteFile(a, []byte("arrival,prompt,output\n0,10,2\n1,10,2\n"), 0o644))
	require.NoError(t, os.WriteFile(b, []byte("arrival,prompt,output\n0,10,2\n1,10,2\n2,10,2\n"), 0o644))
	first, err := scenario.Open(scenario.Scenario{Load: scenario.Load{Trace: a}})
	require.NoError(t, err)
	require.Equal(t, 2, first.Trace.Requests)
	require.NoError(t, os.WriteFile(a, []byte("no trace any more"), 0o644))
	faster, err := first.Vary(scenario.Scenario{Load: scenario.Load{Trace: a, Rate: 4}})
	require.NoError(t, err)
	require.Equal(t, first.About, faster.About)
	require.Zero(t, first.Scenario.Rate)
	other, err := faster.Vary(scenario.Scenario{Load: scenario.Load{Trace: b}})
	require.NoError(t, err)
	require.Equal(t, 3, other.Trace.Requests)
	fewer, err := other.Vary(scenario.Scenario{Load: scenario.Load{Trace: b, Requests: 2}})
	require.NoError(t, err)
	require.Equal(t, 2, fewer.Trace.Taken)
	r, err := other.Run(context.Background(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, 3, r.Answered)
	named, err := other.Vary(scenario.Scenario{Load: scenario.Load{Workload: "alpaca"}})
	require.NoError(t, err)
	require.Nil(t, named.Trace)
}
