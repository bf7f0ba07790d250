package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// A rowwise benchmark is a kernel that computes a row of outputs from a row of inputs.
type rowwise struct {
	kernel  string
	rows, n int
	inputs  int // elements of a row of inputs
	extra   int // elements that all rows read
	launch  func(r rowwise, rows int, out, in, extra cuda.Pointer) kernel
	want    func(r rowwise, in, extra func(i int) float64) []float64 // of one row
}

type kernel interface {
	Launch(*kernels.Set, *cuda.Stream) error
}

func (r rowwise) name() string { return fmt.Sprintf("%s rows=%d n=%d", r.kernel, r.rows, r.n) }

// checked are the rows that are compared with float64 and computed alone.
func checked(rows int) []int { return []int{0, rows / 3, rows - 1} }

func (r rowwise) prepare(b *bench) (p prepared, err error) {
	in, inputs, err := b.random(r.rows * r.inputs)
	if err != nil {
		return p, err
	}
	extra, extras, err := b.random(max(r.extra, 8))
	if err != nil {
		return p, err
	}
	out, err := b.alloc(2 * r.rows * r.n)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * float64(r.rows*(r.inputs+r.n)+r.extra)
	p.launch = func() error {
		return r.launch(r, r.rows, out.Pointer(), inputs.Pointer(), extras.Pointer()).Launch(b.set, b.stream)
	}
	row := func(i int) ([]byte, error) {
		got := make([]byte, 2*r.n)
		return got, out.Read(2*i*r.n, got)
	}
	p.check = func() (float64, error) {
		worst := 0.0
		for _, i := range checked(r.rows) {
			got, err := row(i)
			if err != nil {
				return 0, err
			}
			want := r.want(r, func(j int) float64 { return at(in, i*r.inputs+j) }, func(j int) float64 { return at(extra, j) })
			for j := range want {
				if e := units(at(got, j), want[j]); !(e <= worst) {
					worst = e
				}
			}
		}
		return worst, nil
	}
	p.alone = func() (bool, error) {
		for _, i := range checked(r.rows) {
			before, err := row(i)
			if err != nil {
				return false, err
			}
			if err := b.stream.Fill(out, 2*i*r.n, 2*r.n, 0xff); err != nil {
				return false, err
			}
			k := r.launch(r, 1, out.Pointer()+cuda.Pointer(2*i*r.n), inputs.Pointer()+cuda.Pointer(2*i*r.inputs), extras.Pointer())
			if err := k.Launch(b.set, b.stream); err != nil {
				return false, err
			}
			if err := b.stream.Synchronize(); err != nil {
				return false, err
			}
			after, err := row(i)
			if err != nil || !bytes.Equal(before, after) {
				return false, err
			}
		}
		return true, nil
	}
	return p, nil
}

func rowwises(pick func(normal, small int) int) []benchmark {
	norm := rowwise{kernel: "rms_norm", rows: pick(4096, 3), n: pick(4096, 256)}
	norm.inputs, norm.extra = norm.n, norm.n
	norm.launch = func(r rowwise, rows int, out, in, weight cuda.Pointer) kernel {
		return kernels.RMSNorm{Out: out, In: in, Weight: weight, Tokens: rows, N: r.n, Epsilon: 1e-5}
	}
	norm.want = func(r rowwise, in, weight func(int) float64) []float64 {
		squares, want := 0.0, make([]float64, r.n)
		for j := range r.n {
			squares += in(j) * in(j)
		}
		for j := range want {
			want[j] = in(j) / math.Sqrt(squares/float64(r.n)+float64(float32(1e-5))) * weight(j)
		}
		return want
	}
	layer := rowwise{kernel: "layer_norm", rows: norm.rows, n: norm.n, inputs: norm.n, extra: 2 * norm.n}
	layer.launch = func(r rowwise, rows int, out, in, extra cuda.Pointer) kernel {
		return kernels.LayerNorm{Out: out, In: in, Weight: extra, Bias: extra + cuda.Pointer(2*r.n), Rows: rows, N: r.n, Epsilon: 1e-5}
	}
	layer.want = func(r rowwise, in, extra func(int) float64) []float64 {
		mean, variance, want := 0.0, 0.0, make([]float64, r.n)
		for j := range r.n {
			mean += in(j) / float64(r.n)
		}
		for j := range r.n {
			variance += (in(j) - mean) * (in(j) - mean) / float64(r.n)
		}
		for j := range want {
			want[j] = (in(j)-mean)/math.Sqrt(variance+float64(float32(1e-5)))*extra(j) + extra(r.n+j)
		}
		return want
	}
	return append([]benchmark{norm, layer}, activations(pick)...)
}

// activations are all functions between the products of an MLP.
func activations(pick func(normal, small int) int) (all []benchmark) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	gelu := func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
	for _, f := range []struct {
		function kernels.Function
		halves   int // of a row of inputs
		want     func(x, up float64) float64
	}{
		{kernels.SiLUAndMul, 2, func(x, up float64) float64 { return x * sigmoid(x) * up }},
		{kernels.GELUTanhAndMul, 2, func(x, up float64) float64 { return gelu(x) * up }},
		{kernels.SwiGLUOAIAndMul, 2, func(x, up float64) float64 {
			x, up = min(x, 7), max(-7, min(up, 7))
			return x * sigmoid(float64(float32(1.702))*x) * (up + 1)
		}},
		{kernels.GELUNew, 1, func(x, _ float64) float64 { return gelu(x) }},
		{kernels.ReLU, 1, func(x, _ float64) float64 { return max(x, 0) }},
	} {
		r := rowwise{kernel: string(f.function), rows: pick(2048, 3), n: pick(14336, 264)}
		r.inputs = f.halves * r.n
		r.launch = func(r rowwise, rows int, out, in, _ cuda.Pointer) kernel {
			return kernels.Activation{Function: f.function, Out: out, In: in, Rows: rows, N: r.n}
		}
		r.want = func(r rowwise, in, _ func(int) float64) []float64 {
			want := make([]float64, r.n)
			for j := range want {
				want[j] = f.want(in(j), in((f.halves-1)*r.n+j))
			}
			return want
		}
		all = append(all, r)
	}
	return all
}

// embedded are the rows of tokens.
type embedded struct{ rows, vocabulary, n int }

func (e embedded) name() string {
	return fmt.Sprintf("embedding rows=%d vocabulary=%d n=%d", e.rows, e.vocabulary, e.n)
}

func (e embedded) prepare(b *bench) (p prepared, err error) {
	numbers, table, err := b.random(e.vocabulary * e.n)
	if err != nil {
		return p, err
	}
	tokens := make([]int32, e.rows)
	for i := range tokens {
		tokens[i] = int32(b.rng.IntN(e.vocabulary))
	}
	chosen, err := b.int32s(tokens)
	if err != nil {
		return p, err
	}
	out, err := b.alloc(2 * e.rows * e.n)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * 2 * float64(e.rows*e.n)
	p.launch = func() error {
		return kernels.Embedding{Out: out.Pointer(), Table: table.Pointer(), Tokens: chosen.Pointer(), Rows: e.rows, N: e.n, Scale: 1}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		got, err := contents(out)
		if err != nil {
			return 0, err
		}
		for i := range e.rows * e.n {
			if want := at(numbers, int(tokens[i/e.n])*e.n+i%e.n); at(got, i) != want {
				return 0, fmt.Errorf("element %d of row %d is %v, want %v", i%e.n, i/e.n, at(got, i), want)
			}
		}
		return 0, nil
	}
	return p, nil
}

// argmax is the greedy choice of tokens.
type argmax struct{ rows, n int }

func (a argmax) name() string { return fmt.Sprintf("argmax rows=%d n=%d", a.rows, a.n) }

func (a argmax) prepare(b *bench) (p prepared, err error) {
	logits := make([]byte, 4*a.rows*a.n)
	want := make([]int, a.rows)
	best := make([]float32, a.rows)
	for i := range a.rows * a.n {
		x := b.rng.Float32()
		binary.LittleEndian.PutUint32(logits[4*i:], math.Float32bits(x))
		if row := i / a.n; i%a.n == 0 || x > best[row] {
			best[row], want[row] = x, i%a.n
		}
	}
	in, err := b.upload(logits)
	if err != nil {
		return p, err
	}
	indices, err := b.alloc(4 * a.rows)
	if err != nil {
		return p, err
	}
	values, err := b.alloc(4 * a.rows)
	if err != nil {
		return p, err
	}
	p.bytes = float64(len(logits))
	p.launch = func() error {
		return kernels.ArgMax{Indices: indices.Pointer(), Values: values.Pointer(), Logits: in.Pointer(), Rows: a.rows, N: a.n}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		got := make([]byte, 4*a.rows)
		if err := indices.Read(0, got); err != nil {
			return 0, err
		}
		for row := range want {
			if index := int(binary.LittleEndian.Uint32(got[4*row:])); index != want[row] {
				return 0, fmt.Errorf("row %d is %d, want %d", row, index, want[row])
			}
		}
		return 0, nil
	}
	return p, nil
}

// rotated are the queries and keys of tokens, in place: every launch rotates them further, so the first one is checked.
type rotated struct{ tokens, heads int }

func (r rotated) name() string {
	return fmt.Sprintf("rotary_embedding tokens=%d heads=%d", r.tokens, r.heads)
}

func (r rotated) prepare(b *bench) (p prepared, err error) {
	width := r.heads * headSize
	before, rows, err := b.random(r.tokens * width)
	if err != nil {
		return p, err
	}
	positions, table := make([]int32, r.tokens), make([]byte, 0, 4*r.tokens*headSize)
	for i := range positions {
		positions[i] = int32(i)
		for _, f := range []func(float64) float64{math.Cos, math.Sin} {
			for pair := range headSize / 2 {
				x := float32(f(float64(i) * math.Pow(5e5, -float64(2*pair)/headSize)))
				table = binary.LittleEndian.AppendUint32(table, math.Float32bits(x))
			}
		}
	}
	angles, err := b.upload(table)
	if err != nil {
		return p, err
	}
	where, err := b.int32s(positions)
	if err != nil {
		return p, err
	}
	p.bytes = 2 * 2 * float64(r.tokens*width)
	p.launch = func() error {
		return kernels.RotaryEmbedding{Query: rows.Pointer(), Key: rows.Pointer(), Positions: where.Pointer(), Table: angles.Pointer(), Tokens: r.tokens,
			Heads: r.heads, HeadSize: headSize, Rotated: headSize, QueryStride: width, KeyStride: width}.Launch(b.set, b.stream)
	}
	p.check = func() (float64, error) {
		worst, got := 0.0, make([]byte, 2*width)
		for _, token := range checked(r.tokens) {
			if err := rows.Read(2*token*width, got); err != nil {
				return 0, err
			}
			angle := func(i int) float64 {
				return float64(math.Float32frombits(binary.LittleEndian.Uint32(table[4*(token*headSize+i):])))
			}
			for i := range width {
				head, pair := i/headSize*headSize, i%(headSize/2)
				x, y := at(before, token*width+head+pair), at(before, token*width+head+pair+headSize/2)
				want := x*angle(pair) - y*angle(headSize/2+pair)
				if i%headSize >= headSize/2 {
					want = y*angle(pair) + x*angle(headSize/2+pair)
				}
				if e := units(at(got, i), want); !(e <= worst) {
					worst = e
				}
			}
		}
		return worst, nil
	}
	return p, nil
}
