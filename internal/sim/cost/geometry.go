package cost

import "math"

// cacheShape is what the size of a block depends on. KVHeads are those of one
// worker: with tensor parallelism each holds its part.
type cacheShape struct {
	Layers, KVHeads, HeadSize int
	ElemBytes                 int // of a key or value: 2 for fp16, 1 for fp8
}

// blockBytes returns the size of a block of that many tokens over all layers, keys and
// values (../../vllm/v0/RULES.md §7).
func (m cacheShape) blockBytes(tokens int) int64 {
	return 2 * int64(m.Layers) * m.elements(tokens) * int64(m.ElemBytes)
}

// elements of the keys of a block in one layer.
func (m cacheShape) elements(tokens int) int64 {
	return int64(tokens) * int64(m.KVHeads) * int64(m.HeadSize)
}

// profile is what a profiling run found on a GPU, in bytes.
type profile struct {
	Total       int64
	Utilization float64 // part of Total that may be used; vLLM's default is 0.9
	TorchPeak   int64
	NonTorch    int64 // counts if it is above 0
	Swap        int64 // of the CPU; vLLM's default is 4 GiB
}

// blocks returns how many blocks fit, on the GPU and on the CPU; 0 if none does (../../vllm/v0/RULES.md §7).
func (m profile) blocks(blockBytes int64) (gpu, cpu int) {
	peak := m.TorchPeak + max(0, m.NonTorch)
	left := float64(m.Total)*m.Utilization - float64(peak)
	gpu = max(0, int(math.Floor(left/float64(blockBytes))))
	cpu = max(0, int(m.Swap/blockBytes))
	return gpu, cpu
}
