// The survival tests show that keys and values survive whatever vLLM V1's scheduler does with their blocks. A small
// transformer with random weights runs random requests through the scheduler, the block manager, kvstore and attention.
// Every logit must have the same bits as in one pass of the same model over contiguous memory. If a block table has a
// wrong entry, the logits differ. The tests contain none of the scheduler's rules. The schedulers of V0 and of the
// paper are tested without a model, with testkit/servetest.

package kvstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/parallel"
)

type transformer struct {
	dim, layers, heads, kvHeads, size int

	scale   float32
	softCap float32
	alibi   []float32
	sinks   []float32
	windows []int // by layer; 0: none

	embed   func(x []float32, token int32, position int)
	project func(layer int, x, q, k, v []float32)
	absorb  func(layer int, x, o []float32) // adds what attention found
	logits  func(x []float32) []float32

	cos, sin []float32 // of the rotation of queries and keys; nil: none
}

// A batch contains tokens of some sequences. For each group of layers, it has the slots of the tokens and the
// block tables of the sequences.
type batch struct {
	tokens    []int32
	positions []int32
	starts    []int32 // of sequences, and the end
	lens      []int32
	groups    []memory
	groupOf   []int // by layer
}

type memory struct {
	slots  []int64
	tables []int32
	stride int
}

type machine struct {
	model  *transformer
	store  *kvstore.Store
	runner *attention.Runner
}

var pool = func() *parallel.Pool {
	p, err := parallel.New(2)
	if err != nil {
		panic(err)
	}
	return p
}()

func newMachine(m *transformer, d attention.DType, blockSize, blocks int) *machine {
	store, err := kvstore.New(kvstore.Config{
		Shape:  attention.Shape{BlockSize: blockSize, NumKVHeads: m.kvHeads, HeadSize: m.size, DType: d},
		Layers: m.layers, NumBlocks: max(1, blocks),
	}, pool)
	if err != nil {
		panic(err)
	}
	// NaN everywhere, so that reading what was not written shows.
	for layer := range m.layers {
		c := store.Layer(layer)
		for i := range c.Key {
			c.Key[i] = 0xff
		}
	}
	return &machine{m, store, attention.NewRunner(pool)}
}

func (m *machine) close() {
	if err := m.store.Close(); err != nil {
		panic(err)
	}
}

func (m *machine) run(b *batch) ([][]float32, error) {
	t, n := m.model, len(b.tokens)
	x := make([]float32, n*t.dim)
	q, o := make([]float32, n*t.heads*t.size), make([]float32, n*t.heads*t.size)
	k, v := make([]float32, n*t.kvHeads*t.size), make([]float32, n*t.kvHeads*t.size)
	for i, token := range b.tokens {
		t.embed(x[i*t.dim:][:t.dim], token, int(b.positions[i]))
	}
	for layer := range t.layers {
		for i := range n {
			t.project(layer, x[i*t.dim:][:t.dim], q[i*t.heads*t.size:][:t.heads*t.size],
				k[i*t.kvHeads*t.size:][:t.kvHeads*t.size], v[i*t.kvHeads*t.size:][:t.kvHeads*t.size])
		}
		g := &b.groups[b.groupOf[layer]]
		if err := m.attend(layer, b, g, q, k, v, o); err != nil {
			return nil, fmt.Errorf("layer %d: %w", layer, err)
		}
		for i := range n {
			t.absorb(layer, x[i*t.dim:][:t.dim], o[i*t.heads*t.size:][:t.heads*t.size])
		}
	}
	logits := make([][]float32, n)
	for i := range n {
		logits[i] = t.logits(x[i*t.dim:][:t.dim])
	}
	return logits, nil
}

func (m *machine) attend(layer int, b *batch, g *memory, q, k, v, o []float32) error {
	t := m.model
	tokens := kvstore.Tokens{
		Key: attention.Float32s(k, t.kvHeads*t.size), Value: attention.Float32s(v, t.kvHeads*t.size), Slots: g.slots,
	}
	if t.cos != nil {
		tokens.Rotation = &kvstore.Rotation{Positions: b.positions, Cos: t.cos, Sin: t.sin, Size: t.size}
		t.rotate(q, b.positions)
	}
	if err := m.store.Write(layer, &tokens); err != nil {
		return err
	}
	return m.runner.Forward(m.store.Layer(layer), &attention.Batch{
		NumHeads: t.heads, Query: attention.Float32s(q, t.heads*t.size), Out: attention.Float32s(o, t.heads*t.size),
		QueryStart: b.starts, SeqLens: b.lens, BlockTables: g.tables, TableStride: g.stride,
		Scale: t.scale, SoftCap: t.softCap, AlibiSlopes: t.alibi, Sinks: t.sinks, SlidingWindow: t.windows[layer],
	})
}

func (t *transformer) rotate(q []float32, positions []int32) {
	half := t.size / 2
	for i, p := range positions {
		for h := range t.heads {
			x := q[(i*t.heads+h)*t.size:][:t.size]
			for j := range half {
				c, s := t.cos[int(p)*half+j], t.sin[int(p)*half+j]
				x[j], x[j+half] = x[j]*c-x[j+half]*s, x[j+half]*c+x[j]*s
			}
		}
	}
}

// onePass returns the logits of a whole sequence, computed in one pass over contiguous memory.
func onePass(t *transformer, d attention.DType, tokens []int32) [][]float32 {
	const blockSize = 16
	blocks := (len(tokens) + blockSize - 1) / blockSize
	m := newMachine(t, d, blockSize, blocks)
	defer m.close()
	b := &batch{tokens: tokens, starts: []int32{0, int32(len(tokens))}, lens: []int32{int32(len(tokens))},
		groupOf: make([]int, t.layers)}
	g := memory{stride: blocks}
	for i := range tokens {
		b.positions = append(b.positions, int32(i))
		g.slots = append(g.slots, int64(i))
	}
	for i := range blocks {
		g.tables = append(g.tables, int32(i))
	}
	b.groups = []memory{g}
	logits, err := m.run(b)
	if err != nil {
		panic(err)
	}
	return logits
}

// randomTransformer has two layers of random weights, whatever the token.
func randomTransformer(seed uint64, longest int) *transformer {
	const dim, hidden, vocabulary = 32, 48, 24
	t := &transformer{
		dim: dim, layers: 2, heads: 4, kvHeads: 2, size: 16, scale: 0.25, windows: []int{0, 0},
	}
	r := rand.New(rand.NewPCG(seed, 1))
	matrix := func(rows, columns int) []float32 {
		w := make([]float32, rows*columns)
		for i := range w {
			w[i] = float32(r.NormFloat64() / math.Sqrt(float64(columns)))
		}
		return w
	}
	var wq, wk, wv, wo, up, down [2][]float32
	for l := range 2 {
		wq[l], wk[l], wv[l] = matrix(64, dim), matrix(32, dim), matrix(32, dim)
		wo[l], up[l], down[l] = matrix(dim, 64), matrix(hidden, dim), matrix(dim, hidden)
	}
	out := matrix(vocabulary, dim)
	t.embed = func(x []float32, token int32, _ int) {
		e := rand.New(rand.NewPCG(seed, uint64(uint32(token))))
		for i := range x {
			x[i] = float32(e.NormFloat64())
		}
	}
	t.project = func(l int, x, q, k, v []float32) {
		var y [dim]float32
		normalize(y[:], x)
		times(q, wq[l], y[:])
		times(k, wk[l], y[:])
		times(v, wv[l], y[:])
	}
	t.absorb = func(l int, x, o []float32) {
		var y [dim]float32
		var h [hidden]float32
		times(y[:], wo[l], o)
		add(x, y[:])
		normalize(y[:], x)
		times(h[:], up[l], y[:])
		for i, v := range h {
			h[i] = max(0, v)
		}
		times(y[:], down[l], h[:])
		add(x, y[:])
	}
	t.logits = func(x []float32) []float32 {
		var y [dim]float32
		normalize(y[:], x)
		logits := make([]float32, vocabulary)
		times(logits, out, y[:])
		return logits
	}
	t.makeRotation(longest)
	return t
}

func (t *transformer) makeRotation(longest int) {
	half := t.size / 2
	t.cos, t.sin = make([]float32, longest*half), make([]float32, longest*half)
	for p := range longest {
		for i := range half {
			s, c := math.Sincos(float64(p) * math.Pow(100, -float64(i)/float64(half)))
			t.cos[p*half+i], t.sin[p*half+i] = float32(c), float32(s)
		}
	}
}

// times sets y to the product of the matrix w and the vector x. It adds up four rows at once, so that the
// processor can work on four sums in parallel.
func times(y, w, x []float32) {
	done := 0
	for ; done+4 <= len(y); done += 4 {
		var a, b, c, d float32
		rows := w[done*len(x):]
		wa, wb, wc, wd := rows[:len(x)], rows[len(x):][:len(x)], rows[2*len(x):][:len(x)], rows[3*len(x):][:len(x)]
		for j, v := range x {
			a += wa[j] * v
			b += wb[j] * v
			c += wc[j] * v
			d += wd[j] * v
		}
		y[done], y[done+1], y[done+2], y[done+3] = a, b, c, d
	}
	for i := done; i < len(y); i++ {
		sum := float32(0)
		for j, v := range x {
			sum += w[i*len(x)+j] * v
		}
		y[i] = sum
	}
}

func add(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

func normalize(y, x []float32) {
	sum := float32(0)
	for _, v := range x {
		sum += v * v
	}
	f := float32(1 / math.Sqrt(float64(sum)/float64(len(x))+1e-6))
	for i, v := range x {
		y[i] = v * f
	}
}

func argmax(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}
