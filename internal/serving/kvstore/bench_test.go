package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/benchtest"
)

// The benchmarks use 32 query heads, 8 KV heads, head size 128 and blocks of 16 tokens.
const (
	queryHeads = 32
	kvHeads    = 8
	headSize   = 128
	blockSize  = 16
	benchBytes = 1 << 30 // bytes of keys and values, far beyond the caches
)

func eachThreads(b *testing.B, run func(b *testing.B, threads int)) {
	counts := []int{1}
	if n := runtime.NumCPU(); n > 1 {
		counts = append(counts, n)
	}
	for _, threads := range counts {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) { run(b, threads) })
	}
}

// BenchmarkDecode compares decoding one sequence over scattered blocks with reading the same bytes.
func BenchmarkDecode(b *testing.B) {
	for _, dtype := range []attention.DType{attention.F16, attention.BF16} {
		for _, tokens := range []int{4096, 16384} {
			b.Run(fmt.Sprintf("%v/context=%d", dtype, tokens), func(b *testing.B) {
				eachThreads(b, func(b *testing.B, threads int) {
					l := newLayer(b, dtype, attention.LayoutTile, benchBytes, threads)
					tables := l.tables(tokens, true)
					t := benchtest.ByTurns(b, threads, l.decode(l.batch(1, tokens, 1), tables), l.reading(1, tables))
					bytes := float64(tokens / blockSize * l.cache.BlockStride)
					b.ReportMetric(bytes/float64(benchtest.Median(t[0])), "GB/s")
					b.ReportMetric(100*benchtest.Ratio(t[1], t[0]), "%-of-read")
				})
			})
		}
	}
}

// BenchmarkQuantized compares the tokens per second of 8-bit keys and values with those of f16.
func BenchmarkQuantized(b *testing.B) {
	for _, dtype := range []attention.DType{attention.E4M3, attention.E5M2, attention.Int8} {
		for _, tokens := range []int{4096, 16384} {
			b.Run(fmt.Sprintf("%v/context=%d", dtype, tokens), func(b *testing.B) {
				eachThreads(b, func(b *testing.B, threads int) {
					plain := newLayer(b, attention.F16, attention.LayoutTile, benchBytes, threads)
					small := newLayer(b, dtype, attention.LayoutTile, benchBytes, threads)
					t := benchtest.ByTurns(b, threads, plain.decode(plain.batch(1, tokens, 1), plain.tables(tokens, true)),
						small.decode(small.batch(1, tokens, 1), small.tables(tokens, true)))
					b.ReportMetric(benchtest.Ratio(t[0], t[1]), "x-f16")
				})
			})
		}
	}
}

// BenchmarkPrefill compares 512 queries with the processor's peak of f32 operations.
func BenchmarkPrefill(b *testing.B) {
	const queries = 512
	for _, cached := range []int{0, 4096} {
		b.Run(fmt.Sprintf("cached=%d", cached), func(b *testing.B) {
			eachThreads(b, func(b *testing.B, threads int) {
				l := newLayer(b, attention.F16, attention.LayoutTile, benchBytes/4, threads)
				peak := &peak{rounds: 200_000}
				t := benchtest.ByTurns(b, threads, l.decode(l.batch(1, cached+queries, queries), l.tables(cached+queries, true)), l.peaking(peak))
				operations := 4 * headSize * queryHeads * (float64(queries)*float64(cached) + float64(queries)*(queries+1)/2)
				b.ReportMetric(operations/float64(benchtest.Median(t[0])), "GFLOP/s")
				b.ReportMetric(100*operations/float64(peak.operations*threads)*benchtest.Ratio(t[1], t[0]), "%-of-peak")
			})
		})
	}
}

// BenchmarkCascade decodes 32 sequences that share a prefix of 4,096 tokens. It compares reading the keys and values of
// the prefix once for all sequences with reading them again for each sequence.
func BenchmarkCascade(b *testing.B) {
	const seqs, prefix, suffix = 32, 4096, 64
	eachThreads(b, func(b *testing.B, threads int) {
		l := newLayer(b, attention.F16, attention.LayoutTile, benchBytes/4, threads)
		shared, plain := l.batch(seqs, prefix+suffix, 1), l.batch(seqs, prefix+suffix, 1)
		tables := l.tables(prefix+suffix, true)
		for _, a := range []*attention.Batch{shared, plain} {
			for s := range seqs {
				table := a.BlockTables[s*a.TableStride:][:a.TableStride]
				copy(table, tables[0])
				copy(table[prefix/blockSize:], tables[1+s%(len(tables)-1)])
			}
		}
		shared.CommonPrefix = prefix
		run := func(a *attention.Batch) benchtest.Work {
			return func(int) { require.NoError(b, l.runner.Forward(l.cache, a)) }
		}
		peak := &peak{rounds: 200_000}
		t := benchtest.ByTurns(b, threads, run(shared), run(plain), l.peaking(peak))
		operations := 4.0 * headSize * queryHeads * seqs * (prefix + suffix)
		b.ReportMetric(100*operations/float64(peak.operations*threads)*benchtest.Ratio(t[2], t[0]), "%-of-peak")
		b.ReportMetric(benchtest.Ratio(t[1], t[0]), "x-plain")
	})
}

// BenchmarkPaged compares scattered blocks with contiguous ones (the paper's Fig. 18a).
func BenchmarkPaged(b *testing.B) {
	for _, seqs := range []int{1, 8, 32} {
		for _, tokens := range []int{64, 128, 256, 1024, 4096, 16384} {
			b.Run(fmt.Sprintf("batch=%d/context=%d", seqs, tokens), func(b *testing.B) {
				l := newLayer(b, attention.F16, attention.LayoutTile, benchBytes, 1)
				t := benchtest.ByTurns(b, 1, l.decode(l.batch(seqs, tokens, 1), l.tables(tokens, true)),
					l.decode(l.batch(seqs, tokens, 1), l.tables(tokens, false)))
				b.ReportMetric(micros(t[0]), "us")
				b.ReportMetric(micros(t[1]), "contiguous-us")
				b.ReportMetric(benchtest.Ratio(t[0], t[1]), "x-contiguous")
			})
		}
	}
}

// BenchmarkBlockSize decodes 8 sequences of 1,024 tokens, and swaps 256 tokens of 32 layers out and in again (the
// paper's Fig. 19a).
func BenchmarkBlockSize(b *testing.B) {
	for tokens := 1; tokens <= 256; tokens *= 2 {
		s := shape(attention.F16)
		s.BlockSize = tokens
		b.Run(fmt.Sprintf("decode/tokens=%d", tokens), func(b *testing.B) {
			l := newLayerOf(b, s, benchBytes/4, 1)
			t := benchtest.ByTurns(b, 1, l.decode(l.batch(8, 1024, 1), l.tables(1024, true)))
			b.ReportMetric(micros(t[0]), "us")
		})
		b.Run(fmt.Sprintf("swap/tokens=%d", tokens), func(b *testing.B) {
			n := 256 / tokens
			store, _ := newBenchStore(b, kvstore.Config{Shape: s, Layers: 32, NumBlocks: 4 * n, HostBlocks: n}, 1)
			swapOut, swapIn := make([]kvstore.Pair, n), make([]kvstore.Pair, n)
			for i := range n {
				swapOut[i] = kvstore.Pair{Src: int32(i * 3 % (4 * n)), Dst: int32(i)}
				swapIn[i] = kvstore.Pair{Src: int32(i), Dst: int32(4*n - 1 - i)}
			}
			t := benchtest.ByTurns(b, 1, func(int) {
				require.NoError(b, store.SwapOut(swapOut))
				require.NoError(b, store.SwapIn(swapIn))
			})
			b.ReportMetric(micros(t[0]), "us")
		})
	}
}

// BenchmarkWrite compares reshape_and_cache of 2,048 tokens with copying their keys and values. Each
// iteration writes to blocks that the previous one did not write to.
func BenchmarkWrite(b *testing.B) {
	const n, width = 2048, kvHeads * headSize
	for _, layout := range []attention.Layout{attention.LayoutTile, attention.LayoutFlash, attention.LayoutVLLM} {
		for _, dtype := range []attention.DType{attention.F16, attention.F32} {
			b.Run(fmt.Sprintf("layout=%v/%v", layout, dtype), func(b *testing.B) {
				l := newLayer(b, dtype, layout, benchBytes/4, 1)
				key, value := make([]byte, n*width*dtype.Size()), make([]byte, n*width*dtype.Size())
				t := kvstore.Tokens{
					Key:   attention.Tensor{DType: dtype, Data: key, Stride: width},
					Value: attention.Tensor{DType: dtype, Data: value, Stride: width}, Slots: make([]int64, n),
				}
				tables := l.tables(n, true)
				write := func(i int) {
					table := tables[i%len(tables)]
					for j := range t.Slots {
						t.Slots[j] = int64(table[j/blockSize])*blockSize + int64(j%blockSize)
					}
					require.NoError(b, l.store.Write(0, &t))
				}
				both := append(append([]byte{}, key...), value...)
				target := touched(8 * len(both))
				times := benchtest.ByTurns(b, 1, write, func(i int) { copy(target[i%8*len(both):][:len(both)], both) })
				b.ReportMetric(float64(len(both))/float64(benchtest.Median(times[0])), "GB/s")
				b.ReportMetric(100*benchtest.Ratio(times[1], times[0]), "%-of-memcpy")
			})
		}
	}
}

// BenchmarkMove measures CopyBlocks, SwapOut and SwapIn of 256 blocks in 4 layers. It compares each of them with a
// single call of copy for the same number of bytes.
func BenchmarkMove(b *testing.B) {
	config := kvstore.Config{Shape: shape(attention.F16), Layers: 4, NumBlocks: 1024, HostBlocks: 512}
	store, _ := newBenchStore(b, config, 1)
	swapIn, swapOut := make([]kvstore.Pair, 256), make([]kvstore.Pair, 256)
	for i := range swapIn {
		swapIn[i] = kvstore.Pair{Src: int32(i * 389 % 509), Dst: int32(512 + i*269%509)}
		swapOut[i] = kvstore.Pair{Src: swapIn[i].Dst, Dst: swapIn[i].Src}
	}
	bytes := len(swapIn) * config.BlockBytes()
	src, dst := touched(bytes), touched(bytes)
	for _, move := range []struct {
		name  string
		run   func([]kvstore.Pair) error
		pairs []kvstore.Pair
	}{{"copy_blocks", store.CopyBlocks, swapIn}, {"swap-out", store.SwapOut, swapOut}, {"swap-in", store.SwapIn, swapIn}} {
		b.Run(move.name, func(b *testing.B) {
			t := benchtest.ByTurns(b, 1, func(int) { require.NoError(b, move.run(move.pairs)) }, func(int) { copy(dst, src) })
			b.ReportMetric(float64(bytes)/float64(benchtest.Median(t[0])), "GB/s")
			b.ReportMetric(100*benchtest.Ratio(t[1], t[0]), "%-of-memcpy")
		})
	}
}

func micros(times []time.Duration) float64 {
	return float64(benchtest.Median(times).Nanoseconds()) / 1e3
}

// touched returns memory whose pages the system has handed out.
func touched(n int) []byte {
	data := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		data[i] = 1
	}
	return data
}

type layer struct {
	b      *testing.B
	pool   *parallel.Pool
	runner *attention.Runner
	store  *kvstore.Store
	cache  *attention.Cache
	query  []float32
	out    []float32
}

func shape(dtype attention.DType) attention.Shape {
	return attention.Shape{BlockSize: blockSize, NumKVHeads: kvHeads, HeadSize: headSize, DType: dtype}
}

func newLayer(b *testing.B, dtype attention.DType, layout attention.Layout, bytes, threads int) *layer {
	s := shape(dtype)
	s.Layout = layout
	return newLayerOf(b, s, bytes, threads)
}

func newLayerOf(b *testing.B, s attention.Shape, bytes, threads int) *layer {
	config := kvstore.Config{Shape: s, Layers: 1}
	config.NumBlocks = config.BlocksIn(int64(bytes))
	store, pool := newBenchStore(b, config, threads)
	l := &layer{b: b, pool: pool, runner: attention.NewRunner(pool), store: store, cache: store.Layer(0)}
	l.fill()
	return l
}

func newBenchStore(b *testing.B, config kvstore.Config, threads int) (*kvstore.Store, *parallel.Pool) {
	cpus := make([]int, threads)
	for i := range cpus {
		cpus[i] = i
	}
	pool, err := parallel.New(threads, cpus...)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	store, err := kvstore.New(config, pool)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store, pool
}

func (l *layer) fill() {
	r := rand.New(rand.NewPCG(1, 1))
	const width = kvHeads * headSize
	n, size := min(64, l.cache.NumBlocks), l.cache.BlockSize
	k, v := make([]float32, n*size*width), make([]float32, n*size*width)
	for i := range k {
		k[i], v[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	slots := make([]int64, n*size)
	for i := range slots {
		slots[i] = int64(i)
	}
	tokens := kvstore.Tokens{Key: attention.Float32s(k, width), Value: attention.Float32s(v, width), Slots: slots}
	require.NoError(l.b, l.store.Write(0, &tokens))
	var pairs []kvstore.Pair
	for i := n; i < l.cache.NumBlocks; i++ {
		pairs = append(pairs, kvstore.Pair{Src: int32(i % n), Dst: int32(i)})
	}
	require.NoError(l.b, l.store.CopyBlocks(pairs))
}

// tables returns block tables for sequences of equal length. Together they use all blocks of the
// store, in random order or in ascending order.
func (l *layer) tables(tokens int, random bool) [][]int32 {
	order := make([]int32, l.cache.NumBlocks)
	for i := range order {
		order[i] = int32(i)
	}
	if random {
		r := rand.New(rand.NewPCG(2, 2))
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	n := (tokens + l.cache.BlockSize - 1) / l.cache.BlockSize
	var tables [][]int32
	for first := 0; first+n <= len(order); first += n {
		tables = append(tables, order[first:first+n])
	}
	return tables
}

// batch returns a batch of seqs sequences. Each sequence has the given number of tokens. Its last tokens are query
// tokens; the parameter queries is their number. The caller sets the block tables.
func (l *layer) batch(seqs, tokens, queries int) *attention.Batch {
	n := seqs * queries * queryHeads * headSize
	if len(l.query) < n {
		r := rand.New(rand.NewPCG(3, 3))
		l.query, l.out = make([]float32, n), make([]float32, n)
		for i := range l.query {
			l.query[i] = float32(r.NormFloat64())
		}
	}
	a := &attention.Batch{
		NumHeads: queryHeads, Query: attention.Float32s(l.query[:n], queryHeads*headSize),
		Out:        attention.Float32s(l.out[:n], queryHeads*headSize),
		QueryStart: []int32{0}, Scale: 0.0884, TableStride: (tokens + l.cache.BlockSize - 1) / l.cache.BlockSize,
	}
	for i := range seqs {
		a.QueryStart = append(a.QueryStart, int32((i+1)*queries))
		a.SeqLens = append(a.SeqLens, int32(tokens))
	}
	a.BlockTables = make([]int32, seqs*a.TableStride)
	return a
}

func (l *layer) decode(a *attention.Batch, tables [][]int32) benchtest.Work {
	seqs := len(a.SeqLens)
	return func(i int) {
		for s := range seqs {
			copy(a.BlockTables[s*a.TableStride:], tables[(i*seqs+s)%len(tables)])
		}
		require.NoError(l.b, l.runner.Forward(l.cache, a))
	}
}

type reader struct {
	*layer
	blocks []int32
}

// Do reads one part of the blocks; see parallel.Task.
func (r *reader) Do(_, part int) {
	size, n, parts := r.cache.BlockStride, len(r.blocks), r.pool.Size()
	for _, id := range r.blocks[n*part/parts : n*(part+1)/parts] {
		benchtest.Read(r.cache.Key[int(id)*size:][:size])
	}
}

// reading reads the same bytes as decode.
func (l *layer) reading(seqs int, tables [][]int32) benchtest.Work {
	r := &reader{layer: l}
	return func(i int) {
		r.blocks = r.blocks[:0]
		for s := range seqs {
			r.blocks = append(r.blocks, tables[(i*seqs+s)%len(tables)]...)
		}
		l.pool.Run(l.pool.Size(), r)
	}
}

// A peak multiplies and adds on all workers of a pool.
type peak struct{ rounds, operations int }

// Do is the work of one worker; see parallel.Task.
func (p *peak) Do(_, part int) {
	n := benchtest.Multiply(p.rounds)
	if part == 0 {
		p.operations = n
	}
}

func (l *layer) peaking(p *peak) benchtest.Work {
	return func(int) { l.pool.Run(l.pool.Size(), p) }
}
