package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"
)

type problem struct {
	cache        Cache
	batch        Batch
	query        []float32
	out          []float32
	keep         map[[3]int]referenceRow // the rows that reference has computed; nil: it keeps none
	largestLogit float64                 // the largest magnitude of a logit in the rows that reference has computed
	products     float64                 // the largest sum of the magnitudes of a logit's products, in the last row
}

type referenceRow struct {
	out, size              []float64
	largestLogit, products float64
}

type problemSpec struct {
	shape    Shape
	heads    int
	lens     []int                      // of sequences
	queries  []int                      // query tokens of each; nil: 1
	spare    int                        // blocks that no sequence uses
	common   int                        // tokens of a common prefix
	contents func(r *rand.Rand) float32 // of keys, values and queries; nil: normal
	gap      int                        // bytes between blocks, a multiple of 4
}

func aligned(n int) []byte {
	raw := make([]byte, n+64)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) & 63)
	return raw[skip : skip+n : skip+n]
}

func newProblem(r *rand.Rand, spec problemSpec) *problem {
	p := &problem{}
	bs := spec.shape.BlockSize
	maxBlocks, blocks := 1, spec.spare+1
	for _, n := range spec.lens {
		maxBlocks = max(maxBlocks, (n+bs-1)/bs)
		blocks += (n + bs - 1) / bs
	}
	cache, err := NewCache(spec.shape, aligned(spec.shape.BlockBytes()*blocks))
	if err != nil {
		panic(err)
	}
	spread(&cache, spec.gap)
	p.cache = cache
	ids := r.Perm(blocks - 1)
	tables := make([]int32, maxBlocks*len(spec.lens))
	lens := make([]int32, len(spec.lens))
	starts := make([]int32, len(spec.lens)+1)
	for s, n := range spec.lens {
		lens[s] = int32(n)
		q := 1
		if spec.queries != nil {
			q = spec.queries[s]
		}
		starts[s+1] = starts[s] + int32(q)
		for i := range maxBlocks {
			tables[s*maxBlocks+i] = -1
			if i*bs < n {
				tables[s*maxBlocks+i] = int32(ids[0] + 1)
				ids = ids[1:]
			}
			if s > 0 && (i+1)*bs <= spec.common {
				tables[s*maxBlocks+i] = tables[i]
			}
		}
	}
	size := spec.shape.HeadSize
	tokens := int(starts[len(spec.lens)])
	p.query = make([]float32, tokens*spec.heads*size)
	p.out = make([]float32, len(p.query))
	contents := spec.contents
	if contents == nil {
		contents = func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }
	}
	for i := range p.query {
		p.query[i] = contents(r)
	}
	p.fill(r, contents)
	p.batch = Batch{
		NumHeads: spec.heads, Query: Float32s(p.query, spec.heads*size), Out: Float32s(p.out, spec.heads*size),
		QueryStart: starts, SeqLens: lens, BlockTables: tables, TableStride: maxBlocks,
		Scale: float32(1 / math.Sqrt(float64(size))), CommonPrefix: spec.common,
	}
	return p
}

// spread gives a cache other memory, with gaps between its blocks.
func spread(c *Cache, gap int) {
	if gap == 0 {
		return
	}
	c.BlockStride += gap
	memory := aligned(c.BlockStride * c.NumBlocks)
	c.Key, c.Value = memory, aligned(len(memory))
	if c.Layout == LayoutTile {
		half := c.BlockSize * c.HeadSize * c.DType.Size()
		c.Value = memory[half:]
		if c.DType == Int8 {
			c.ScaleBlockStride = c.BlockStride
			c.KeyScales, c.ValueScales = memory[2*half:], memory[2*half+4*c.BlockSize:]
		}
		return
	}
	if c.DType == Int8 {
		c.ScaleBlockStride += gap
		c.KeyScales, c.ValueScales = aligned(c.ScaleBlockStride*c.NumBlocks), aligned(c.ScaleBlockStride*c.NumBlocks)
	}
}

// stride runs the batch with a gap after each row of the queries and of the outputs, and copies the outputs to p.out. A
// gap has as many elements as gap says. stride returns an error if Forward wrote to a gap.
func (p *problem) stride(r *Runner, gap int) error {
	b := p.batch
	width := b.NumHeads * p.cache.HeadSize
	rows := len(p.query) / width
	query, out := make([]float32, rows*(width+gap)), make([]float32, rows*(width+gap))
	for i := range rows {
		copy(query[i*(width+gap):], p.query[i*width:][:width])
	}
	for i := range out {
		out[i] = 77
	}
	b.Query, b.Out = Float32s(query, width+gap), Float32s(out, width+gap)
	if err := r.Forward(&p.cache, &b); err != nil {
		return err
	}
	for i := range rows {
		copy(p.out[i*width:][:width], out[i*(width+gap):])
		for j, v := range out[i*(width+gap)+width:][:gap] {
			if v != 77 {
				return fmt.Errorf("element %d after row %d was written", j, i)
			}
		}
	}
	return nil
}

// fill writes random numbers from contents to all keys and values. KeyOffset and ValueOffset, the formulas of the
// layout, give the place of each number.
func (p *problem) fill(r *rand.Rand, contents func(r *rand.Rand) float32) {
	c, units := &p.cache, float32(1)
	if c.DType == Int8 {
		units = 40
	}
	for b := range c.NumBlocks {
		for h := range c.NumKVHeads {
			for t := range c.BlockSize {
				for i := range c.HeadSize {
					c.DType.Store(unsafe.Pointer(&c.Key[c.KeyOffset(b, h, t, i)]), contents(r)*units)
					c.DType.Store(unsafe.Pointer(&c.Value[c.ValueOffset(b, h, t, i)]), contents(r)*units)
				}
				if c.DType == Int8 {
					c.Scales(c.KeyScales, b, h)[t] = float32(0.01 + 0.02*r.Float64())
					c.Scales(c.ValueScales, b, h)[t] = float32(0.01 + 0.02*r.Float64())
				}
			}
		}
	}
}

// attended returns the logits and values of the tokens to which a row attends. It finds keys and values by the
// formulas of the layouts.
func (p *problem) attended(seq, query, head int) (logits []float64, values [][]float64) {
	c, b := &p.cache, &p.batch
	first, _, position := b.queries(seq)
	position += query
	kvHead := head / (b.NumHeads / c.NumKVHeads)
	q := p.query[((first+query)*b.NumHeads+head)*c.HeadSize:][:c.HeadSize]
	keyFactor, valueFactor := c.Factors()
	start := 0
	p.products = 0
	if b.SlidingWindow > 0 {
		start = max(0, position-b.SlidingWindow+1)
	}
	if b.Chunk > 0 {
		start = max(start, position/b.Chunk*b.Chunk)
	}
	for t := start; t <= position; t++ {
		block, offset := int(b.BlockTables[seq*b.TableStride+t/c.BlockSize]), t%c.BlockSize
		ks, vs := float64(keyFactor), float64(valueFactor)
		if c.DType == Int8 {
			ks = float64(c.Scales(c.KeyScales, block, kvHead)[offset])
			vs = float64(c.Scales(c.ValueScales, block, kvHead)[offset])
		}
		dot, products, v := 0.0, 0.0, make([]float64, c.ValueSize())
		for i := range c.HeadSize {
			x := float64(q[i]) * float64(c.DType.Load(unsafe.Pointer(&c.Key[c.KeyOffset(block, kvHead, offset, i)]))) * ks
			dot += x
			products += math.Abs(x)
		}
		for i := range v {
			v[i] = float64(c.DType.Load(unsafe.Pointer(&c.Value[c.ValueOffset(block, kvHead, offset, i)]))) * vs
		}
		s := dot * float64(b.Scale)
		p.products = max(p.products, products*math.Abs(float64(b.Scale)))
		if b.SoftCap != 0 {
			s = float64(b.SoftCap) * math.Tanh(s/float64(b.SoftCap))
		}
		if b.AlibiSlopes != nil {
			s += float64(b.AlibiSlopes[head]) * float64(t-position)
		}
		p.largestLogit = max(p.largestLogit, math.Abs(s))
		logits, values = append(logits, s), append(values, v)
	}
	return logits, values
}

// reference computes one row in float64. It returns the outputs, and the sum of |p·v| for each element of the
// output.
func (p *problem) reference(seq, query, head int) (out, size []float64) {
	row := [3]int{seq, query, head}
	if found, ok := p.keep[row]; ok {
		p.largestLogit, p.products = max(p.largestLogit, found.largestLogit), found.products
		return found.out, found.size
	}
	if p.keep != nil {
		earlier := p.largestLogit
		p.largestLogit = 0
		defer func() {
			p.keep[row] = referenceRow{out, size, p.largestLogit, p.products}
			p.largestLogit = max(p.largestLogit, earlier)
		}()
	}
	c, b := &p.cache, &p.batch
	logits, values := p.attended(seq, query, head)
	largest, sum := math.Inf(-1), 0.0
	for _, s := range logits {
		if s > largest || s != s {
			largest = s
		}
	}
	if b.Sinks != nil {
		largest = math.Max(largest, float64(b.Sinks[head]))
		sum = math.Exp(float64(b.Sinks[head]) - largest)
	}
	out, size = make([]float64, c.ValueSize()), make([]float64, c.ValueSize())
	for i, s := range logits {
		if math.IsInf(s, -1) {
			continue
		}
		w := math.Exp(s - largest)
		sum += w
		for j, v := range values[i] {
			out[j] += w * v
			size[j] += math.Abs(w * v)
		}
	}
	for j := range out {
		if sum != 0 {
			out[j] /= sum
			size[j] /= sum
		}
	}
	return out, size
}

func (p *problem) eachRow(visit func(seq, query, head int, out []float32)) {
	b, size := &p.batch, p.cache.HeadSize
	for seq := range b.seqs() {
		first, n, _ := b.queries(seq)
		for row := range n * b.NumHeads {
			visit(seq, row/b.NumHeads, row%b.NumHeads, p.out[(first*b.NumHeads+row)*size:][:size])
		}
	}
}

func smallProblem(d DType) *problem {
	return newProblem(rand.New(rand.NewPCG(9, 9)), problemSpec{
		shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 64, DType: d},
		heads: 8, lens: []int{1300, 1120, 1601}, queries: []int{1, 20, 1}, common: 1040,
	})
}
