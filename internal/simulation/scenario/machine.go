package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
)

// A Machine has a model, its GPUs and the source of the times of iterations. Either Setup names all of these together,
// or Model and GPU name the model and the kind of GPU. Workers, Stages, Weights, KV, Apart and Engine are allowed only
// with Model and GPU. The value of Setup, Model or GPU is a name in llmsim list, or a file.
type Machine struct {
	Setup string `json:"setup,omitempty"` // default PaperSetup
	Model string `json:"model,omitempty"`
	GPU   string `json:"gpu,omitempty"`

	Workers int    `json:"workers,omitempty"`      // tensor parallelism; default 1
	Stages  int    `json:"stages,omitempty"`       // pipeline parallelism, each stage with Workers; default 1
	Weights string `json:"weights,omitempty"`      // number format of the weights; default the model's
	KV      string `json:"kv,omitempty"`           // number format of keys and values; default the model's
	Apart   bool   `json:"expertsApart,omitempty"` // expert parallelism: each expert is whole on one worker

	SwapGB float64 `json:"swapGB,omitempty"` // limit of swapping in GB/s; default the link to the CPU
	Engine string  `json:"engine,omitempty"` // one of Engines, with Model and GPU; default: see chooseEngine
	Cost   string  `json:"cost,omitempty"`   // a file from llmsim calibrate; its times replace the setup's

	// MemoryUtilization is the fraction of each GPU's memory that may be used, as vLLM's gpu_memory_utilization. The
	// default is the fraction in the setup. If Model and GPU are given instead of Setup, the default is
	// DefaultMemoryUtilization.
	MemoryUtilization float64 `json:"memoryUtilization,omitempty"`
}

func (m *Machine) check() error {
	switch {
	case m.Engine != "" && m.Cost != "":
		return bad("times come from the engine %q or from the cost file %q, not from both", m.Engine, m.Cost)
	case m.Setup != "" && (m.Model != "" || m.GPU != ""):
		return bad("the setup %q has a model and a GPU already: leave out %s", m.Setup,
			strings.Join(slices.DeleteFunc([]string{m.Model, m.GPU}, func(n string) bool { return n == "" }), " and "))
	case m.Workers < 0:
		return bad("%d workers: want at least 1", m.Workers)
	case m.Model == "" && m.GPU == "" &&
		(m.Engine != "" || m.Workers > 0 || m.Stages != 0 || m.Apart || m.Weights != "" || m.KV != ""):
		return bad("--engine, --workers, --stages, --experts-apart, --weights and --kv go with --model and --gpu: a setup has " +
			"its own")
	case m.GPU == "" && m.Model != "":
		return bad("a model needs a GPU: name one beside %q: %s, or a .json file", m.Model,
			strings.Join(cost.GPUs(), ", "))
	case m.Model == "" && m.GPU != "":
		return bad("a GPU needs a model: name one beside %q: %s, or a .json file", m.GPU, strings.Join(cost.LLMs(), ", "))
	case m.MemoryUtilization != 0 && !(m.MemoryUtilization > 0 && m.MemoryUtilization <= 1):
		return bad("a memory utilization of %v: want more than 0, and at most 1", m.MemoryUtilization)
	}
	return nil
}

// DataSheet names the engine whose constants were chosen by hand for vLLM of 2023, and not compared with
// measurements on the GPU.
const DataSheet = "data-sheet"

// Engines returns the valid names for Machine.Engine.
func Engines() []string { return []string{cost.VLLM, DataSheet} }

// chooseEngine sets the constants of the scenario's engine. If the scenario names none, it chooses vLLM V1 if
// there are constants for the GPU, or else DataSheet, and writes the name to p.Scenario.Engine.
func (p *Plan) chooseEngine() error {
	s := &p.Scenario
	switch s.Engine {
	case DataSheet:
		return nil
	case "", cost.VLLM:
	default:
		return fmt.Errorf("engine %q: %w: there are %s (V1) and %s; for other engines and releases, use llmsim calibrate "+
			"with your measurements", s.Engine, cost.ErrUnknown, cost.VLLM, DataSheet)
	}
	if s.Engine == "" && s.Cost != "" { // the cost file has the times
		return nil
	}
	fitted, err := cost.OpenVLLM(p.Setup.GPU.Name)
	if s.Engine == "" && errors.Is(err, cost.ErrUnknown) {
		s.Engine = DataSheet
		return nil
	}
	if err != nil {
		return err
	}
	s.Engine = cost.VLLM
	p.Setup = p.Setup.On(fitted)
	return nil
}

// DefaultMemoryUtilization is vLLM's default (EngineArgs.gpu_memory_utilization). The paper's setups use
// 0.95, as its artifact does.
const DefaultMemoryUtilization = 0.9

// PoolShare returns the memory utilization from which the number of blocks was computed, or 0 if the scenario
// states the number of blocks.
func (p *Plan) PoolShare() float64 {
	v := &p.Scenario.Server
	if gpu, _, err := p.Setup.Pool(v.BlockSize); err != nil || gpu != v.NumGPUBlocks {
		return 0
	}
	return p.Setup.Memory.Utilization
}

// SortingPool returns how many blocks would fit if the sampler sorted all logits, which needs memory (see cost.Setup).
// It returns 0 if the scenario states the number of blocks, or if as many blocks or none at all fit with sorting.
func (p *Plan) SortingPool() int {
	if p.PoolShare() == 0 {
		return 0
	}
	s := p.Setup
	s.Sorts = true
	v := &p.Scenario.Server
	if gpu, _, err := s.Pool(v.BlockSize); err == nil && gpu < v.NumGPUBlocks {
		return gpu
	}
	return 0
}

// largeGPU is the smallest memory, in bytes, with which a GPU gets larger default limits from vllm serve. An A100 never
// gets them (vllm-project/vllm#17073, #17885; EngineArgs.get_batch_defaults).
const largeGPU = 70 << 30

// useDefaults sets the limits of an iteration that are not given to the defaults of vllm serve, if the system is vLLM
// V0 or V1 and the scenario names a model and a GPU. The defaults are 256 sequences and 2,048 tokens. For V1 on a large
// GPU they are 1,024 and 8,192. V1's have not changed since 0.8.5. Unless V0 chunks prompts, it computes whole ones, so
// its limit of tokens is at least MaxModelLen.
//
// V1 reserves memory for the activations of the largest iteration that the limits allow. useDefaults therefore also
// sets V1's limits in p.Setup, from which this memory is computed.
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
