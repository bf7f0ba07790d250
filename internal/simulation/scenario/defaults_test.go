package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/sim"
)

func TestLimitsAreThoseOfVLLMServe(t *testing.T) {
	for _, c := range []struct {
		name         string
		gpu          string
		server       sim.Server
		seqs, tokens int
	}{
		{"V1 on a large GPU", "h100-80gb", sim.Server{}, 1024, 8192},
		{"V1 on an A100 is the exception", "a100-80gb", sim.Server{}, 256, 2048},
		{"V1 on a small GPU", "l4", sim.Server{System: "vllm-v1"}, 256, 2048},
		{"what is asked for stays", "h100-80gb", sim.Server{MaxNumSeqs: 64, MaxNumBatchedTokens: 512}, 64, 512},
		{"every sequence has a token", "l4", sim.Server{MaxNumSeqs: 4000}, 4000, 4000},
		{"V0 takes whole prompts", "h100-80gb", sim.Server{System: "vllm-v0"}, 256, 8192},
		{"V0 in chunks", "h100-80gb", sim.Server{System: "vllm-v0", Chunked: true}, 256, 2048},
		{"not a vLLM", "h100-80gb", sim.Server{System: "orca-max"}, 256, 8192},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, Scenario{Machine: Machine{Model: "llama-3-8b", GPU: c.gpu}, Server: c.server})
			require.Equal(t, c.seqs, p.Scenario.Server.MaxNumSeqs)
			require.Equal(t, c.tokens, p.Scenario.Server.MaxNumBatchedTokens)
			require.Equal(t, p.Scenario, open(t, p.Scenario).Scenario)
		})
	}
	paper := open(t, Scenario{})
	require.Equal(t, 2560, paper.Scenario.Server.MaxNumBatchedTokens, "the paper's setup has the artifact's")
}
