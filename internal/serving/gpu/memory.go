package gpu

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
)

// allocateBuffers allocates most of the memory that the largest batch needs. Its caller, allocate, allocates the memory
// for the results and for attention.
func (r *Runner) allocateBuffers() {
	var products kernels.ProductPlan
	r.try(func() (err error) { products, err = r.products(&r.config); return err })
	var picked cuda.Pointer
	buffers := [...]*cuda.Pointer{&r.x, &r.normed, &r.sums, &r.qkv, &r.attended, &r.upOut, &r.act, &picked, &r.scratch.parts, &r.scratch.unpacked}
	for i, size := range r.bufferSizes(&r.config, &products) {
		m := r.alloc(size)
		if *buffers[i] = m.Pointer(); buffers[i] == &picked {
			r.picked = m
		}
	}
	arrived := r.alloc(4 * max(products.Counters, r.attentionCounters()))
	r.scratch.arrived = arrived.Pointer()
	r.try(func() error { return r.stream.Fill(arrived, 0, arrived.Size(), 0) })
}

// bufferSizes returns the sizes of the buffers, in the order of allocateBuffers.
func (m *Model) bufferSizes(c *engine.RunnerConfig, products *kernels.ProductPlan) [10]int {
	n, bytes := c.MaxNumBatchedTokens, m.kind.Bytes()
	hidden := n * m.HiddenSize * bytes
	return [...]int{hidden, hidden, hidden, n * m.width * bytes, n * m.query * bytes, max(n*m.upStored()*bytes, 16), n * m.IntermediateSize * bytes,
		c.MaxLogits() * m.HiddenSize * bytes, max(products.PartBytes, 16), max(products.UnpackedBytes, 16)}
}

// products returns a plan with the largest numbers of bytes and counters that any product of the model needs.
func (m *Model) products(c *engine.RunnerConfig) (largest kernels.ProductPlan, err error) {
	seen := map[kernels.Weights]bool{}
	for _, w := range m.matrices() {
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
	return largest, nil
}

// attentionBytes returns the memory for the results that attention stores for each partition of a sequence
// (AttentionPartition tokens). The memory suffices for a decoding step whose sequences use all blocks and share none.
func (r *Runner) attentionBytes() int {
	return (r.config.Store.NumBlocks*r.config.Store.BlockSize/kernels.AttentionPartition + 2*r.config.MaxNumSeqs) * r.attentionShape.PartitionBytes()
}

// attentionCounters returns how many counters attention needs. A tile of a sequence has 16 rows but for the last one, and
// a token has a row for each query head of a key head.
func (r *Runner) attentionCounters() int {
	rows := r.config.MaxNumBatchedTokens * r.NumHeads / r.NumKVHeads
	return (rows/16 + r.config.MaxNumBatchedTokens + 1) * r.NumKVHeads
}

// matrices returns the matrices of the model. Until Load has put them on the GPU, it returns the matrices that
// WeightBytes has found in the files. If WeightBytes was not called either, it returns one matrix of each shape, in the
// type of the activations.
func (m *Model) matrices() (all []kernels.Weights) {
	if len(m.layers) == 0 && m.expected != nil {
		return m.expected
	}
	if len(m.layers) == 0 {
		for _, size := range [][2]int{{m.VocabSize, m.HiddenSize}, {m.width, m.HiddenSize}, {m.HiddenSize, m.query},
			{m.upOutputs(), m.HiddenSize}, {m.HiddenSize, m.IntermediateSize}} {
			all = append(all, kernels.Weights{Type: m.kind, Outputs: size[0], Columns: size[1]})
		}
		return all
	}
	linears := []*linear{&m.head}
	for i := range m.layers {
		l := &m.layers[i]
		linears = append(linears, &l.qkv, &l.out, &l.upProj, &l.downProj)
	}
	for _, l := range linears {
		for _, p := range l.parts {
			all = append(all, p.Weights)
		}
	}
	return all
}

// upStored returns how many outputs of the MLP's first matrices are stored for a token: 0 if products compute the
// activations of all layers.
func (m *Model) upStored() int {
	for i := range m.layers {
		if !m.layers[i].upProj.parts[0].Gated {
			return m.upOutputs()
		}
	}
	if len(m.layers) == 0 { // it is not known yet
		return m.upOutputs()
	}
	return 0
}

// upOutputs returns the outputs of the MLP's first matrices.
func (s *shape) upOutputs() int {
	if s.Gated() {
		return 2 * s.IntermediateSize
	}
	return s.IntermediateSize
}

// A Budget says, in bytes, how much memory the GPU has and what a model needs of it.
type Budget struct {
	Total, Free int // Free includes the memory of the model's weights
	Weights     int
	model       *Model
	profiled    int // what the largest batches took beyond what batches returns; 0 until there are weights
}

// NewBudget returns the budget of a model. The parameter weightBytes is the size of the weights that are not on the GPU
// yet. If the weights are on the GPU, NewBudget runs the largest batches to find how much memory batches need. If the
// memory is too small for the largest batches, NewBudget runs smaller batches.
func (m *Model) NewBudget(weightBytes int, c engine.RunnerConfig) (*Budget, error) {
	b := &Budget{Weights: weightBytes + m.Bytes(), model: m}
	var err error
	if b.Free, b.Total, err = m.device.context.MemoryLeft(); err != nil {
		return nil, err
	}
	b.Free += m.Bytes()
	if len(m.layers) == 0 {
		return b, nil
	}
	for {
		bytes, err := m.profile(c)
		if err == nil {
			b.profiled = max(0, bytes-m.batches(c))
			return b, nil
		}
		if !errors.Is(err, cuda.ErrOutOfMemory) || c.MaxNumBatchedTokens == 1 && c.MaxNumSeqs == 1 {
			return nil, fmt.Errorf("%v: a batch cannot be computed: %w", m.device, err)
		}
		c.MaxNumBatchedTokens, c.MaxNumSeqs = (c.MaxNumBatchedTokens+1)/2, (c.MaxNumSeqs+1)/2
	}
}

// Device names the GPU.
func (b *Budget) Device() string { return b.model.device.String() }

// Batches returns the memory for the largest batch.
func (b *Budget) Batches(c engine.RunnerConfig) int { return b.model.batches(c) + b.profiled }

// Left returns how many bytes weights and batches leave free (vLLM's determine_available_memory). These bytes are for
// keys and values, and for the results that attention stores while it reads the keys and values. The parameter
// utilization is the fraction of the GPU's memory that may be in use (vLLM's gpu_memory_utilization). Left is negative
// if this memory does not suffice for weights and batches.
func (b *Budget) Left(utilization float64, c engine.RunnerConfig) int {
	return b.Free - b.Unused(utilization) - b.Weights - b.Batches(c)
}

// Unused returns the memory that utilization leaves unused.
func (b *Budget) Unused(utilization float64) int { return int(float64(b.Total) * (1 - utilization)) }

// KVCacheBytes returns how many bytes of keys and values fit into the memory that Left returns. The parameter
// tokenBytes is the size of a token's keys and values.
func (b *Budget) KVCacheBytes(left, tokenBytes int) int {
	return int(float64(left) / b.attention(tokenBytes))
}

// WithAttention returns the memory for keys and values together with the results that attention stores while it reads
// them. The parameter bytes is the size of all keys and values, and tokenBytes is the size of one token's keys and
// values.
func (b *Budget) WithAttention(bytes, tokenBytes int) int {
	return int(math.Ceil(float64(bytes) * b.attention(tokenBytes)))
}

func (b *Budget) attention(tokenBytes int) float64 {
	return 1 + float64(b.model.attention(0).PartitionBytes())/float64(kernels.AttentionPartition*tokenBytes)
}

// batches returns the memory for the largest batch. It does not include the memory that the driver allocates, which
// only profile can find.
func (m *Model) batches(c engine.RunnerConfig) int {
	bytes := 4*c.MaxLogits()*(m.VocabSize+2) + 2*c.MaxNumSeqs*m.attention(0).PartitionBytes()
	products, err := m.products(&c)
	if err == nil {
		bytes += 4 * products.Counters
	}
	for _, size := range m.bufferSizes(&c, &products) {
		bytes += size
	}
	for rope := range m.ropes() {
		bytes += 8 * c.MaxModelLen * (rope.Rotated(m.HeadDim) / 2)
	}
	tables := 4 * powerOfTwo(min(c.MaxNumSeqs, c.MaxNumBatchedTokens)) * powerOfTwo(ceil(c.MaxModelLen, kernels.BlockUnit))
	return bytes + 2*(tables+32*c.MaxNumBatchedTokens)
}

func ceil(n, unit int) int { return (n + unit - 1) / unit }

// profile computes the largest batches with a store of one block. It returns how much free memory this takes (vLLM's
// profile_run). This includes the runner's buffers. It also includes the driver's memory for compiled kernels, for
// registers that do not fit, and for graphs. The driver's memory is known only afterwards. Graphs of other shapes take
// more memory later. Therefore a part of the memory must remain unused.
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
	for _, b := range []*model.Batch{prompts, decodes, decodes} { // the second decoding step is a graph
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

// largestBatch returns the largest batch that c allows. Each of its sequences has at most maxTokens tokens to compute.
// The keys and values of the batch are not stored.
func largestBatch(c *engine.RunnerConfig, maxTokens int) *model.Batch {
	b := &model.Batch{QueryStart: []int32{0}}
	b.TableStride = (c.MaxModelLen + c.Store.BlockSize - 1) / c.Store.BlockSize
	for len(b.SeqLens) < c.MaxNumSeqs && len(b.Tokens) < c.MaxNumBatchedTokens {
		n := min(maxTokens, c.MaxNumBatchedTokens-len(b.Tokens))
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

// ShapeBytes estimates the memory for a model's weights from its shape, as if they had the type of activations.
func (m *Model) ShapeBytes() int {
	all := m.matrices()
	bytes := all[0].PackedBytes() + m.VocabSize*m.HiddenSize*m.kind.Bytes()
	for _, w := range all[1:] {
		bytes += m.NumLayers * w.PackedBytes()
	}
	return bytes
}

// WeightBytes estimates the memory for a model's weights from its files. The Model keeps the shapes and types of the
// matrices in these files. Until Load puts the weights on the GPU, a Budget computes the memory for batches from
// these shapes and types.
func (m *Model) WeightBytes(files *weights.Tensors) int {
	bytes := m.VocabSize * m.HiddenSize * m.kind.Bytes() // embeddings, which are not quantized
	m.expected = nil
	table := !m.TieEmbeddings // the files have the embeddings beside the last matrix
	for _, name := range files.Names() {
		t := files.Get(name)
		if table && t.Rows == m.VocabSize && t.Cols == m.HiddenSize && strings.Contains(name, "emb") {
			table = false
			continue
		}
		if t.Rows == 1 || t.Cols == 1 {
			bytes += t.Rows * t.Cols * m.kind.Bytes()
			continue
		}
		w := kernels.Weights{Type: m.kind, Outputs: t.Rows, Columns: t.Cols}
		if format, ok := formats[t.DType]; ok && !t.Combined() {
			w.Format = format
		}
		m.expected = append(m.expected, w)
		bytes += w.PackedBytes()
	}
	if table { // under another name, so it was counted twice
		bytes -= m.VocabSize * m.HiddenSize * m.kind.Bytes()
	}
	return bytes
}

// A MemoryUse says what uses the memory of a GPU, in bytes. The rest of Total is used by other programs, and by
// the driver for what Open made.
type MemoryUse struct {
	Weights, KVCache, Free, Total int

	// Batches is the decrease of free memory since Open, without the memory in Weights and KVCache. It contains buffers of
	// batches, compiled kernels and graphs. It also contains what other programs have allocated since Open.
	Batches int
}

// MemoryUse returns what uses the GPU's memory now. The parameter kvCache is the memory for keys and values.
func (m *Model) MemoryUse(kvCache int) (MemoryUse, error) {
	u := MemoryUse{Weights: m.Bytes(), KVCache: kvCache}
	var err error
	u.Free, u.Total, err = m.device.context.MemoryLeft()
	u.Batches = max(0, m.device.free-u.Free-u.Weights-u.KVCache)
	return u, err
}

// scratch is memory that kernels use one after the other.
type scratch struct {
	parts, unpacked cuda.Pointer // of products
	arrived         cuda.Pointer // counters of products and of attention, which are 0 between kernels
	attention       *cuda.Memory // results of partitions
}

// growAttention makes the memory for results of partitions at least size bytes large. Before it frees the
// smaller memory, it waits until no batch uses it.
func (r *Runner) growAttention(size int) error {
	s := &r.scratch
	if s.attention != nil && s.attention.Size() >= size {
		return nil
	}
	larger, err := r.context.Alloc(max(size, 16))
	if err != nil {
		return err
	}
	err = errors.Join(r.stream.Synchronize(), r.graphs.close(), s.attention.Close())
	s.attention = larger
	return err
}
