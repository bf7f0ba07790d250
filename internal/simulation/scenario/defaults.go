package scenario

import (
	"strings"

	"llmmemory/internal/simulation/sim"
)

// largeGPU is the GPU memory at or above which vllm serve has larger limits, except on an A100
// (vllm-project/vllm#17073, #17885; EngineArgs.get_batch_defaults).
const largeGPU = 70 << 30

// useDefaults sets the limits of an iteration to the defaults of vllm serve, if the system is vLLM and the scenario
// names a model and a GPU. V1's defaults, unchanged since 0.8.5, are 256 sequences and 2,048 tokens, or 1,024 and 8,192
// on a large GPU; they also determine the memory that activations take. V0 processes whole prompts.
func (p *Plan) useDefaults(v *sim.Server) {
	if p.Scenario.Model == "" {
		return
	}
	seqs, tokens := 256, 2048
	switch v.System {
	case "", sim.DefaultSystem:
		if g := p.Setup.GPU; g.MemoryBytes >= largeGPU && !strings.HasPrefix(g.Name, "a100") {
			seqs, tokens = 1024, 8192
		}
	case "vllm-v0":
		if !v.Chunked {
			tokens = max(tokens, v.MaxModelLen)
		}
	default:
		return
	}
	if v.MaxNumSeqs == 0 {
		v.MaxNumSeqs = seqs
	}
	if v.MaxNumBatchedTokens == 0 {
		v.MaxNumBatchedTokens = max(tokens, v.MaxNumSeqs)
	}
	if v.System != "vllm-v0" && p.Setup.Sequences == 0 {
		p.Setup.Sequences, p.Setup.Memory.Tokens = v.MaxNumSeqs, v.MaxNumBatchedTokens
	}
}
