package cost

import (
	"errors"
	"fmt"
	"math"
)

// ErrMemory is wrapped when a model and one block do not fit on its GPUs.
var ErrMemory = errors.New("does not fit")

// Memory is how much of a GPU is for blocks.
type Memory struct {
	Utilization float64 `json:"utilization"`     // part of the GPU's memory that may be used
	Tokens      int     `json:"batched_tokens"`  // most in one iteration: what activations are made for
	Workspace   int64   `json:"workspace_bytes"` // of libraries
	Swap        int64   `json:"swap_bytes"`      // of CPU memory for each GPU
}

// DefaultMemory is that of the paper's artifact (simulation/PAPER.md §1). vLLM's own defaults
// are a utilization of 0.9 and 4 GiB to swap to (scheduling/vllm/v0/RULES.md §7).
var DefaultMemory = Memory{Utilization: 0.95, Tokens: 2560, Workspace: 1 << 30, Swap: 20 << 30}

const (
	activationBytes = 2  // fp16, however weights are stored
	paperBlock      = 16 // tokens; the pool is counted in these
)

// Of vLLM V1, from the medians of what the fitted half of published pools leaves besides weights
// (published/memory.json, TestPoolsOfVLLMV1).
const (
	workspaceV1  = 348 << 20 // bytes that libraries use besides activationsV1
	sortedLogits = 9.4       // copies of all logits in fp32 that a sampler holds that sorts them
)

// Pool returns how many blocks of blockSize tokens fit, on the GPUs and on the CPU.
// Workers hold their part of every block, so it is the number for each of them.
//
// The memory is what whole blocks of 16 take, whatever the block size, so that
// systems with different blocks have the same bytes. The error wraps ErrMemory
// if not one block fits, or ErrFile.
func (s Setup) Pool(block int) (gpu, cpu int, err error) {
	if err := s.check(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s: %w", ErrFile, s.Name, err)
	}
	if err := checkBlock(block); err != nil {
		return 0, 0, err
	}
	gpu, cpu = s.paperBlocks()
	gpu, cpu = gpu*paperBlock/block, cpu*paperBlock/block
	if gpu == 0 {
		return 0, 0, s.tooLarge(block)
	}
	return gpu, cpu, nil
}

// paperBlocks returns how many blocks of 16 tokens fit, on each GPU and on the CPU; 0 if none does.
func (s Setup) paperBlocks() (gpu, cpu int) {
	bytes := s.blockBytes(paperBlock)
	left := float64(s.GPU.MemoryBytes)*s.Memory.Utilization - float64(s.besides())
	return max(0, int(math.Floor(left/float64(bytes)))), int(s.Memory.Swap / bytes)
}

// besides returns the bytes of each GPU that a profiling run would find in use besides blocks: the weights,
// activations and the workspace of libraries.
func (s Setup) besides() int64 {
	activations := activationBytes * s.LLM.activationElements(s.Memory.Tokens, s.Workers)
	workspace := s.Memory.Workspace
	if s.Sequences > 0 {
		activations, workspace = s.LLM.activationsV1(s.Memory.Tokens, s.Sequences, s.Workers), workspaceV1
		if s.Sorts {
			activations = max(activations, sortedLogits*s.LLM.logitsBytes(s.Sequences))
		}
	}
	return int64(math.Ceil(s.stageWeights()+activations)) + workspace
}

func (s Setup) tooLarge(block int) error {
	need := s.besides() + s.blockBytes(max(block, paperBlock))
	missing := need - int64(float64(s.GPU.MemoryBytes)*s.Memory.Utilization)
	advice := "no number of workers would do"
	if w := s.enough(block); w > 0 {
		advice = fmt.Sprintf("%d workers would do", w)
	}
	return fmt.Errorf("%w: %s and one block of %d tokens need %.1f GB (%d bytes) more than %g of the %.1f GB of each "+
		"%s; %s",
		ErrMemory, s.LLM.Name, block, float64(missing)/1e9, missing, s.Memory.Utilization,
		float64(s.GPU.MemoryBytes)/1e9,
		s.GPU.Name, advice)
}

// enough returns the least number of workers that hold a sequence of the model's full
// length, and a block; 0 if there is none.
func (s Setup) enough(block int) int {
	for s.Workers++; s.Workers <= s.LLM.Heads; s.Workers++ {
		if s.LLM.splits(s.Workers) != nil {
			continue
		}
		if gpu, _ := s.paperBlocks(); gpu*paperBlock >= max(block, s.LLM.MaxLength) {
			return s.Workers
		}
	}
	return 0
}

func (m Memory) check() error {
	return within(figure{"utilization", m.Utilization, 1e-3, 1}, figure{"batched_tokens", float64(m.Tokens), 1, maxDimension},
		figure{"workspace_bytes", float64(m.Workspace), 0, 1 << 50}, figure{"swap_bytes", float64(m.Swap), 0, 1 << 50})
}
