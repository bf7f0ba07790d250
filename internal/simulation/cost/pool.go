package cost

import (
	"errors"
	"fmt"
	"math"
)

// ErrMemory is wrapped when the GPUs do not have memory for the model and one block.
var ErrMemory = errors.New("does not fit")

// Memory says how the memory for blocks is computed.
type Memory struct {
	Utilization float64 `json:"utilization" range:"0.001 1"`       // fraction of the GPU's memory that may be used
	Tokens      int     `json:"batched_tokens" range:"1 16777216"` // largest number in one iteration; determines the size of activations
	Workspace   int64   `json:"workspace_bytes" range:"0 1e15"`    // of libraries
	Swap        int64   `json:"swap_bytes" range:"0 1e15"`         // CPU memory for the blocks of each GPU
}

// DefaultMemory has the values of the paper's artifact (simulation/PAPER.md §1). vLLM's own defaults are a
// utilization of 0.9 and 4 GiB of swap space (scheduling/vllm/v0/RULES.md §7).
var DefaultMemory = Memory{Utilization: 0.95, Tokens: 2560, Workspace: 1 << 30, Swap: 20 << 30}

const (
	activationBytes = 2  // fp16, for all formats of weights
	paperBlock      = 16 // tokens; Pool computes the memory of whole blocks of this size
)

// The logs of vLLM V1 in published/memory.json, which say how large the pool of blocks was, are divided into two
// halves. Each constant is near a median over the first half. TestPoolsOfVLLMV1 compares the constants with these
// medians, and the computed pools with both halves.
const (
	workspaceV1  = 348 << 20 // bytes of libraries, in addition to activationsV1
	sortedLogits = 9.4       // copies of all logits in fp32 that a sorting sampler needs
)

// Pool returns how many blocks of the given size in tokens fit on the GPUs and in the CPU's memory. Each
// worker has its part of every block.
//
// The memory is rounded down to whole blocks of 16 tokens first, so that systems with different block sizes have the
// same memory. The error wraps ErrMemory if no block fits, and ErrFile if the setup or the block size is not valid.
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

func (s Setup) paperBlocks() (gpu, cpu int) {
	bytes := s.blockBytes(paperBlock)
	free := float64(s.GPU.MemoryBytes)*s.Memory.Utilization - float64(s.used())
	return max(0, int(math.Floor(free/float64(bytes)))), int(s.Memory.Swap / bytes)
}

// used returns the bytes of a GPU that a profiling run finds in use before blocks are allocated.
func (s Setup) used() int64 {
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
	need := s.used() + s.blockBytes(max(block, paperBlock))
	missing := need - int64(float64(s.GPU.MemoryBytes)*s.Memory.Utilization)
	advice := "no number of workers would do"
	if w := s.minWorkers(block); w > 0 {
		advice = fmt.Sprintf("%d workers would do", w)
	}
	return fmt.Errorf("%w: %s and one block of %d tokens need %.1f GB (%d bytes) more than %g of the %.1f GB of each "+
		"%s; %s", ErrMemory, s.LLM.Name, block, float64(missing)/1e9, missing, s.Memory.Utilization,
		float64(s.GPU.MemoryBytes)/1e9, s.GPU.Name, advice)
}

// minWorkers returns the smallest number of workers with enough memory for the model. Besides the weights and
// activations, their memory must have space for one block and for a sequence of the model's greatest length, whichever
// is larger. minWorkers tries only numbers above s.Workers for which splits returns no error. It returns 0 if none is
// large enough.
func (s Setup) minWorkers(block int) int {
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
