package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestDisaggregateSaysTheBestDivisionFirst(t *testing.T) {
	level.SkipQuick(t)
	args := []string{"disaggregate", "--model", "llama-3-8b", "--gpu", "l4", "--servers", "2", "--seconds", "60", "--workload", "alpaca", "--slo", "ttft<1s@p90,tpot<90ms@p90"}
	status, out, said := llmsim(t, args...)
	require.Zero(t, status, said)
	answer := regexp.MustCompile(`^(all 2 servers should do both|1 of 2 servers should prefill and 1 decode): ([\d.]+) requests/s under `).FindStringSubmatch(out)
	require.Len(t, answer, 3, out)
	both := regexp.MustCompile(`(?m)^all do both +([\d.]+)`).FindStringSubmatch(out)
	apart := regexp.MustCompile(`(?m)^1 +1 +([\d.]+)`).FindStringSubmatch(out)
	require.Len(t, both, 2, out)
	require.Len(t, apart, 2, out)
	best := max(number(t, both[1]), number(t, apart[1]))
	require.Equal(t, best, number(t, answer[2]))
	require.Equal(t, number(t, both[1]) == best, strings.HasPrefix(out, "all 2"))
	require.Contains(t, out, "all do both")
	require.Contains(t, out, "compared with no measurement")
	narrow(t, out)
	status, _, said = llmsim(t, append(args, "--servers", "1")...)
	require.Equal(t, 1, status)
	require.Contains(t, said, "1 servers")
}

func number(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}
