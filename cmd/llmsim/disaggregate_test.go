package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestDisaggregateSaysTheBestDivisionFirst(t *testing.T) {
	level.SkipQuick(t)
	args := []string{"disaggregate", "--model", "llama-3-8b", "--gpu", "l4", "--servers", "2", "--seconds", "60", "--slo", "ttft<1s@p90,tpot<90ms@p90"}
	status, out, said := llmsim(t, args...)
	require.Zero(t, status, said)
	require.Regexp(t, `^(all 2 servers should do both|1 servers should prefill and 1 decode): [\d.]+ requests/s under `, out)
	require.Contains(t, out, "all do both")
	require.Contains(t, out, "held against no measurement")
	narrow(t, out)
	status, _, said = llmsim(t, append(args, "--servers", "1")...)
	require.Equal(t, 1, status)
	require.Contains(t, said, "1 servers")
}
