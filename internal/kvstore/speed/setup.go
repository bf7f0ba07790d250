package speed

import (
	"math/rand/v2"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/parallel"
)

// The shape of the tables: 32 query heads on 8, head size 128, blocks of 16.
const (
	queryHeads = 32
	kvHeads    = 8
	headSize   = 128
	blockSize  = 16
	memory     = 1 << 30 // bytes of keys and values, far beyond the caches
)

// A bench is a store with one layer, and threads.
type bench struct {
	pool   *parallel.Pool
	runner *attention.Runner
	store  *kvstore.Store
	cache  *attention.Cache
	query  []float32
	out    []float32
}

func shape(d attention.DType) attention.Shape {
	return attention.Shape{BlockSize: blockSize, NumKVHeads: kvHeads, HeadSize: headSize, DType: d}
}

// newBench makes a store of the given size, filled with keys and values.
func newBench(d attention.DType, l attention.Layout, bytes, threads int) (*bench, error) {
	s := shape(d)
	s.Layout = l
	return newBenchOf(s, bytes, threads)
}

func newBenchOf(s attention.Shape, bytes, threads int) (*bench, error) {
	cpus := make([]int, threads)
	for i := range cpus {
		cpus[i] = i
	}
	pool, err := parallel.New(threads, cpus...)
	if err != nil {
		return nil, err
	}
	config := kvstore.Config{Shape: s, Layers: 1}
	config.NumBlocks = config.BlocksIn(int64(bytes))
	store, err := kvstore.New(config, pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	b := &bench{pool: pool, runner: attention.NewRunner(pool), store: store, cache: store.Layer(0)}
	if err := b.fill(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// fill writes random keys and values into the first blocks, and copies them to all others.
func (b *bench) fill() error {
	r := rand.New(rand.NewPCG(1, 1))
	n, blockSize := min(64, b.cache.NumBlocks), b.cache.BlockSize
	k, v := make([]float32, n*blockSize*kvHeads*headSize), make([]float32, n*blockSize*kvHeads*headSize)
	for i := range k {
		k[i], v[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	slots := make([]int64, n*blockSize)
	for i := range slots {
		slots[i] = int64(i)
	}
	width := kvHeads * headSize
	if err := b.store.Write(0, &kvstore.Tokens{Key: attention.Float32s(k, width), Value: attention.Float32s(v, width),
		Slots: slots}); err != nil {
		return err
	}
	var pairs []kvstore.Pair
	for i := n; i < b.cache.NumBlocks; i++ {
		pairs = append(pairs, kvstore.Pair{Src: int32(i % n), Dst: int32(i)})
	}
	return b.store.CopyBlocks(pairs)
}

func (b *bench) close() {
	_ = b.store.Close()
	b.pool.Close()
}

// tables are the block tables of sequences of equal length that use all blocks of the
// store, in random order or one after the other.
func (b *bench) tables(tokens int, random bool) [][]int32 {
	order := make([]int32, b.cache.NumBlocks)
	for i := range order {
		order[i] = int32(i)
	}
	if random {
		r := rand.New(rand.NewPCG(2, 2))
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	n := (tokens + b.cache.BlockSize - 1) / b.cache.BlockSize
	var tables [][]int32
	for at := 0; at+n <= len(order); at += n {
		tables = append(tables, order[at:at+n])
	}
	return tables
}

// batch is seqs sequences of some tokens, the last of which are queries. Its block tables
// are for the caller to fill in.
func (b *bench) batch(seqs, tokens, queries int) *attention.Batch {
	n := seqs * queries * queryHeads * headSize
	if len(b.query) < n {
		r := rand.New(rand.NewPCG(3, 3))
		b.query, b.out = make([]float32, n), make([]float32, n)
		for i := range b.query {
			b.query[i] = float32(r.NormFloat64())
		}
	}
	a := &attention.Batch{
		NumHeads: queryHeads, Query: attention.Float32s(b.query[:n], queryHeads*headSize),
		Out:        attention.Float32s(b.out[:n], queryHeads*headSize),
		QueryStart: []int32{0}, Scale: 0.0884, TableStride: (tokens + b.cache.BlockSize - 1) / b.cache.BlockSize,
	}
	for i := range seqs {
		a.QueryStart = append(a.QueryStart, int32((i+1)*queries))
		a.SeqLens = append(a.SeqLens, int32(tokens))
	}
	a.BlockTables = make([]int32, seqs*a.TableStride)
	return a
}

// decode computes a batch over the tables in turn.
func (b *bench) decode(a *attention.Batch, tables [][]int32) work {
	seqs := len(a.SeqLens)
	return func(i int) {
		for s := range seqs {
			copy(a.BlockTables[s*a.TableStride:], tables[(i*seqs+s)%len(tables)])
		}
		must(b.runner.Forward(b.cache, a))
	}
}

// A reader reads the blocks of sequences with all workers of a pool.
type reader struct {
	*bench
	blocks []int32
}

// Do reads one part of the blocks; see parallel.Task.
func (r *reader) Do(_, part int) {
	size, n, parts := r.cache.BlockStride, len(r.blocks), r.pool.Size()
	for _, id := range r.blocks[n*part/parts : n*(part+1)/parts] {
		Read(r.cache.Key[int(id)*size:][:size])
	}
}

// reading reads the same bytes as decode.
func (b *bench) reading(seqs int, tables [][]int32) work {
	r := &reader{bench: b}
	return func(i int) {
		r.blocks = r.blocks[:0]
		for s := range seqs {
			r.blocks = append(r.blocks, tables[(i*seqs+s)%len(tables)]...)
		}
		b.pool.Run(b.pool.Size(), r)
	}
}
