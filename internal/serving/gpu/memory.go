package gpu

import (
	"errors"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
)

// allocateBuffers allocates the memory that the largest batch needs, without the memory for results and for attention.
func (r *Runner) allocateBuffers() {
	n, bytes := r.config.MaxNumBatchedTokens, r.kind.Bytes()
	var products kernels.ProductPlan
	r.try(func() (err error) { products, err = r.products(&r.config); return err })
	for _, b := range []struct {
		to   *cuda.Pointer
		size int
	}{
		{&r.x, n * r.HiddenSize * bytes}, {&r.normed, n * r.HiddenSize * bytes}, {&r.sums, n * r.HiddenSize * bytes},
		{&r.qkv, n * r.width * bytes}, {&r.attended, n * r.query * bytes}, {&r.up, n * r.layers[0].up.out * bytes},
		{&r.act, n * r.layers[0].down.parts[0].Columns * bytes}, {&r.picked, r.config.MaxLogits() * r.HiddenSize * bytes},
		{&r.scratch.parts, max(products.PartBytes, 16)}, {&r.scratch.unpacked, max(products.UnpackedBytes, 16)},
	} {
		*b.to = r.alloc(b.size).Pointer()
	}
	arrived := r.alloc(max(4*products.Counters, 16))
	r.scratch.arrived = arrived.Pointer()
	r.try(func() error { return r.stream.Fill(arrived, 0, arrived.Size(), 0) })
}

// products returns a plan with the largest numbers of bytes and counters that any product of the model needs.
func (m *Model) products(c *engine.RunnerConfig) (largest kernels.ProductPlan, err error) {
	linears := []*linear{&m.head}
	for i := range m.layers {
		l := &m.layers[i]
		linears = append(linears, &l.qkv, &l.out, &l.up, &l.down)
	}
	seen := map[kernels.Weights]bool{}
	for _, l := range linears {
		for _, p := range l.parts {
			w := p.Weights
			if w.Packed = 0; seen[w] {
				continue
			}
			seen[w] = true
			for rows := 1; rows <= max(c.MaxNumBatchedTokens, c.MaxLogits()); rows++ {
				plan, err := w.Plan(m.device.context.Device(), rows)
				if err != nil {
					return largest, err
				}
				largest.PartBytes, largest.Counters = max(largest.PartBytes, plan.PartBytes), max(largest.Counters, plan.Counters)
				largest.UnpackedBytes = max(largest.UnpackedBytes, plan.UnpackedBytes)
			}
		}
	}
	return largest, nil
}

// attentionBytes returns the memory for results of partitions in a decoding step whose sequences use all
// blocks.
func (r *Runner) attentionBytes() int {
	return (r.config.Store.NumBlocks*r.config.Store.BlockSize/kernels.AttentionPartition + 2*r.config.MaxNumSeqs) * r.attentionShape.PartitionBytes()
}

// KVCacheBytes returns the memory for keys and values that is left beside weights and batches (vLLM's
// determine_available_memory). The parameter utilization is the fraction of the GPU's memory that may be in
// use (vLLM's gpu_memory_utilization), and weightBytes is the size of the weights that are not on the GPU
// yet. If no memory is left, the error says how much is missing.
func (m *Model) KVCacheBytes(utilization float64, weightBytes int, c engine.RunnerConfig) (int, error) {
	free, total, err := m.device.context.MemoryLeft()
	if err != nil {
		return 0, err
	}
	partition := m.attention(0).PartitionBytes()
	batch := 4*c.MaxLogits()*(m.VocabSize+2) + 2*c.MaxNumSeqs*partition // an estimate, as long as there are no weights
	if len(m.layers) > 0 {
		if batch, err = m.profile(c); err != nil {
			return 0, fmt.Errorf("%v: the largest batch cannot be computed, so give a smaller --max-num-batched-tokens, --max-num-seqs or --max-model-len: %w", m.device, err)
		}
	}
	reserved := int(float64(total) * (1 - utilization))
	left := free - reserved - weightBytes - batch
	if left > 0 {
		block := 2 * m.NumLayers * m.kv * m.cacheType.Bytes(m.kind) // bytes of a token
		return int(float64(left) / (1 + float64(partition)/float64(kernels.AttentionPartition*block))), nil
	}
	advice := "give a model with smaller weights, or a smaller --max-num-batched-tokens or --max-model-len"
	if enough := utilization + float64(1-left)/float64(total); enough < 0.99 {
		advice = fmt.Sprintf("give --gpu-memory-utilization %.2f", math.Ceil(enough*100+1)/100)
	}
	return 0, fmt.Errorf("not enough GPU memory: %v: weights of %s and %s for batches need %s more than there is: %s of %s are free, of which --gpu-memory-utilization %v leaves %s unused: %s",
		m.device, cuda.BytesText(weightBytes+m.Bytes()), cuda.BytesText(batch), cuda.BytesText(-left), cuda.BytesText(free+m.Bytes()), cuda.BytesText(total), utilization, cuda.BytesText(reserved), advice)
}

// profile computes the largest batches with a store of one block, and returns how much free memory this takes
// (vLLM's profile_run). Besides the runner's buffers, this includes the memory that the driver takes for
// compiled kernels, for registers that do not fit, and for graphs, which is known only afterwards. Graphs of
// other shapes take more memory later. Therefore a part of the memory must remain unused.
func (m *Model) profile(c engine.RunnerConfig) (bytes int, err error) {
	before, _, err := m.device.context.MemoryLeft()
	if err != nil {
		return 0, err
	}
	shape, err := m.KVShape(kernels.BlockUnit)
	if err != nil {
		return 0, err
	}
	c.Store = kvstore.Config{Shape: shape, Layers: 1, NumBlocks: 1}
	c.Places = make([]model.Place, m.NumLayers)
	c.AskedModelLen = max(c.AskedModelLen, c.MaxModelLen)
	r, err := m.NewRunner(c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	prompts, decodes := largestBatch(&c, c.MaxModelLen), largestBatch(&c, 1)
	for _, b := range []*model.Batch{prompts, decodes, decodes, decodes} { // the third decoding step is a graph
		if err := r.Forward(b); err != nil {
			return 0, err
		}
		if _, err := r.ComputeLogits(b, 0, len(b.Logits)); err != nil {
			return 0, err
		}
	}
	after, _, err := m.device.context.MemoryLeft()
	return before - after, err
}

// largestBatch returns the largest batch of sequences with at most length tokens to compute. Their keys and
// values are not stored.
func largestBatch(c *engine.RunnerConfig, length int) *model.Batch {
	b := &model.Batch{QueryStart: []int32{0}}
	b.TableStride = (c.MaxModelLen + c.Store.BlockSize - 1) / c.Store.BlockSize
	for len(b.SeqLens) < c.MaxNumSeqs && len(b.Tokens) < c.MaxNumBatchedTokens {
		n := min(length, c.MaxNumBatchedTokens-len(b.Tokens))
		for p := range n {
			if len(b.Logits) < c.MaxLogits() {
				b.Logits = append(b.Logits, int32(len(b.Tokens)))
			}
			b.Tokens, b.Positions, b.Slots = append(b.Tokens, 0), append(b.Positions, int32(p)), append(b.Slots, -1)
		}
		b.QueryStart, b.SeqLens = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(n))
	}
	b.BlockTables = make([]int32, len(b.SeqLens)*b.TableStride)
	return b
}

// WeightBytes estimates the memory for a model's weights from its files.
func (m *Model) WeightBytes(files *weights.Tensors) int {
	bytes := m.VocabSize * m.HiddenSize * m.kind.Bytes() // embeddings, which are not quantized
	for _, name := range files.Names() {
		t := files.Get(name)
		w := kernels.Weights{Type: m.kind, Outputs: t.Rows, Columns: t.Cols}
		if format, ok := formats[t.DType]; ok && !t.Combined() {
			w.Format = format
		}
		bytes += w.PackedBytes()
	}
	if !m.TieEmbeddings { // the table is among the files, too
		bytes -= m.VocabSize * m.HiddenSize * m.kind.Bytes()
	}
	return bytes
}
