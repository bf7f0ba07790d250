package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine/sampling"
)

// A rowwise is a case of a kernel that computes each row of outputs from one row of inputs.
type rowwise struct {
	kernel  string
	rows, n int
	inputs  int // elements of a row of inputs
	extra   int // elements that all rows read
	launch  func(r rowwise, rows int, out, input, extra cuda.Pointer) kernel
	want    func(r rowwise, input, extra func(i int) float64) []float64 // of one row
}

// checked returns the indexes of the rows that are checked. The rows may also be sequences, queries, heads or tokens.
func checked(rows int) []int { return []int{0, rows / 3, rows - 1} }

func (r rowwise) benchmark() benchmark {
	return benchmark{name: fmt.Sprintf("%s rows=%d n=%d", r.kernel, r.rows, r.n), prepare: r.prepare}
}

func (r rowwise) prepare(b *bench) prepared {
	input, inputs := b.random(r.rows * r.inputs)
	extra, extras := b.random(max(r.extra, 8))
	out := b.alloc(2 * r.rows * r.n)
	p := prepared{bytes: 2 * float64(r.rows*(r.inputs+r.n)+r.extra)}
	p.kernel = r.launch(r, r.rows, out.Pointer(), inputs.Pointer(), extras.Pointer())
	p.check = func() (worst float64) {
		for _, i := range checked(r.rows) {
			got := contents(out, 2*i*r.n, 2*r.n)
			want := r.want(r, func(j int) float64 { return element(input, i*r.inputs+j) }, func(j int) float64 { return element(extra, j) })
			for j := range want {
				worst = max(worst, units(element(got, j), want[j]))
			}
		}
		return worst
	}
	p.batchInvariant = func() bool {
		for _, i := range checked(r.rows) {
			alone := r.launch(r, 1, out.Pointer()+cuda.Pointer(2*i*r.n), inputs.Pointer()+cuda.Pointer(2*i*r.inputs), extras.Pointer())
			if !b.repeats(alone, out, 2*i*r.n, 2*r.n) {
				return false
			}
		}
		return true
	}
	return p
}

func rowwises(pick func(normal, small int) int) []benchmark {
	norm := rowwise{kernel: "rms_norm", rows: pick(4096, 3), n: pick(4096, 256)}
	norm.inputs, norm.extra = norm.n, norm.n
	norm.launch = func(r rowwise, rows int, out, x, weight cuda.Pointer) kernel {
		return kernels.RMSNorm{Out: out, In: x, Weight: weight, Tokens: rows, N: r.n, Epsilon: 1e-5}
	}
	norm.want = func(r rowwise, x, weight func(int) float64) []float64 {
		squares, want := 0.0, make([]float64, r.n)
		for j := range r.n {
			squares += x(j) * x(j)
		}
		for j := range want {
			want[j] = x(j) / math.Sqrt(squares/float64(r.n)+float64(float32(1e-5))) * weight(j)
		}
		return want
	}
	layer := rowwise{kernel: "layer_norm", rows: norm.rows, n: norm.n, inputs: norm.n, extra: 2 * norm.n}
	layer.launch = func(r rowwise, rows int, out, x, extra cuda.Pointer) kernel {
		return kernels.LayerNorm{Out: out, In: x, Weight: extra, Bias: extra + cuda.Pointer(2*r.n), Rows: rows, N: r.n, Epsilon: 1e-5}
	}
	layer.want = func(r rowwise, x, extra func(int) float64) []float64 {
		mean, variance, want := 0.0, 0.0, make([]float64, r.n)
		for j := range r.n {
			mean += x(j) / float64(r.n)
		}
		for j := range r.n {
			variance += (x(j) - mean) * (x(j) - mean) / float64(r.n)
		}
		for j := range want {
			want[j] = (x(j)-mean)/math.Sqrt(variance+float64(float32(1e-5)))*extra(j) + extra(r.n+j)
		}
		return want
	}
	sum := rowwise{kernel: "add", rows: norm.rows, n: norm.n, inputs: norm.n, extra: norm.n}
	sum.launch = func(r rowwise, rows int, out, x, bias cuda.Pointer) kernel {
		return kernels.Add{Out: out, In: x, Other: bias, Rows: rows, N: r.n, Scale: 1}
	}
	sum.want = func(r rowwise, x, bias func(int) float64) []float64 {
		want := make([]float64, r.n)
		for j := range want {
			want[j] = x(j) + bias(j)
		}
		return want
	}
	return append([]benchmark{norm.benchmark(), layer.benchmark(), sum.benchmark()}, activations(pick)...)
}

func activations(pick func(normal, small int) int) (all []benchmark) {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	gelu := func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) }
	for _, f := range []struct {
		function kernels.Function
		halves   int // of a row of inputs
		want     func(x, up float64) float64
	}{
		{kernels.SiLUAndMul, 2, func(x, y float64) float64 { return x * sigmoid(x) * y }},
		{kernels.GELUTanhAndMul, 2, func(x, y float64) float64 { return gelu(x) * y }},
		{kernels.SwiGLUOAIAndMul, 2, func(x, y float64) float64 {
			x, y = min(x, 7), max(-7, min(y, 7))
			return x * sigmoid(float64(float32(1.702))*x) * (y + 1)
		}},
		{kernels.GELUNew, 1, func(x, _ float64) float64 { return gelu(x) }},
		{kernels.ReLU, 1, func(x, _ float64) float64 { return max(x, 0) }},
	} {
		r := rowwise{kernel: string(f.function), rows: pick(2048, 3), n: pick(14336, 264)}
		r.inputs = f.halves * r.n
		r.launch = func(r rowwise, rows int, out, x, _ cuda.Pointer) kernel {
			return kernels.Activation{Function: f.function, Out: out, In: x, Rows: rows, N: r.n}
		}
		r.want = func(r rowwise, x, _ func(int) float64) []float64 {
			want := make([]float64, r.n)
			for j := range want {
				want[j] = f.want(x(j), x((f.halves-1)*r.n+j))
			}
			return want
		}
		all = append(all, r.benchmark())
	}
	return all
}

func embedding(rows, vocabulary, n int) benchmark {
	return benchmark{name: fmt.Sprintf("embedding rows=%d vocabulary=%d n=%d", rows, vocabulary, n), prepare: func(b *bench) prepared {
		numbers, table := b.random(vocabulary * n)
		tokens := make([]int32, rows)
		for i := range tokens {
			tokens[i] = int32(b.rng.IntN(vocabulary))
		}
		out := b.alloc(2 * rows * n)
		return prepared{
			bytes:  2 * 2 * float64(rows*n),
			kernel: kernels.Embedding{Out: out.Pointer(), Table: table.Pointer(), Tokens: b.numbers(tokens), Rows: rows, N: n, Scale: 1},
			check: func() float64 {
				got := contents(out, 0, out.Size())
				for i := range rows * n {
					if want := element(numbers, int(tokens[i/n])*n+i%n); element(got, i) != want {
						must(fmt.Errorf("element %d of row %d is %v, want %v", i%n, i/n, element(got, i), want))
					}
				}
				return 0
			},
		}
	}}
}

// sample returns a case that chooses a token from each row of logits: the largest one if topK is 0, and otherwise a random
// one of the topK largest.
func sample(rows, n, topK int) benchmark {
	return benchmark{name: fmt.Sprintf("sample rows=%d n=%d top_k=%d", rows, n, topK), prepare: func(b *bench) prepared {
		logits, want := make([]float32, rows*n), make([]int32, rows)
		for i := range logits {
			logits[i] = float32(2 * b.rng.NormFloat64())
		}
		params := make([]kernels.SamplingRow, rows)
		var sampler sampling.Sampler
		for i := range params {
			p := sampling.Default()
			p.Seed, p.TopK = uint64(i), topK
			params[i] = kernels.SamplingRow{Random: sampling.Random(p.Seed, 0), TopP: math.MaxUint64, Scale: 1, Repetition: 1, TopK: int32(topK), Token: -1, Mask: -1}
			if topK == 0 {
				p.Temperature, params[i].Scale = 0, 0
			}
			want[i] = sampler.Sample(&p, sampling.State{}, logits[i*n:][:n])
		}
		tokens, values := b.alloc(4*rows), b.alloc(4*rows)
		return prepared{
			bytes: 4 * float64(rows*n),
			kernel: kernels.Sample{Tokens: tokens.Pointer(), Values: values.Pointer(), Logits: b.numbers(logits), Rows: rows, N: n,
				Params: b.numbers(params)},
			check: func() float64 {
				got := contents(tokens, 0, 4*rows)
				for row := range want {
					if token := int32(binary.LittleEndian.Uint32(got[4*row:])); token != want[row] {
						must(fmt.Errorf("row %d is %d, want %d", row, token, want[row]))
					}
				}
				return 0
			},
		}
	}}
}

// rotary returns a case that rotates the queries of tokens in place, and writes one head of keys and values. Each launch
// rotates the queries further, so check is about the first launch only.
func rotary(tokens, heads int) benchmark {
	return benchmark{name: fmt.Sprintf("fused_qk_norm_rope_and_cache tokens=%d heads=%d", tokens, heads), prepare: func(b *bench) prepared {
		width := heads * headSize
		before, rows := b.random(tokens * width)
		_, key := b.random(tokens * headSize)
		cache := b.alloc(2 * (tokens + blockSize) * headSize)
		positions, slots, table := make([]int32, tokens), make([]int64, tokens), make([]float32, 0, tokens*headSize)
		for i := range positions {
			positions[i], slots[i] = int32(i), int64(i)
			for _, f := range []func(float64) float64{math.Cos, math.Sin} {
				for pair := range headSize / 2 {
					table = append(table, float32(f(float64(i)*math.Pow(5e5, -float64(2*pair)/headSize))))
				}
			}
		}
		return prepared{
			bytes: 2 * 2 * float64(tokens*width),
			kernel: kernels.QKNormRopeAndCache{ReshapeAndCache: kernels.ReshapeAndCache{Key: key.Pointer(), Value: key.Pointer(), KeyCache: cache.Pointer(),
				ValueCache: cache.Pointer(), Slots: b.numbers(slots), Tokens: tokens, KeyHeads: 1, HeadSize: headSize, BlockSize: blockSize},
				Query: rows.Pointer(), Heads: heads, Positions: b.numbers(positions), Table: b.numbers(table), Rotated: headSize},
			check: func() (worst float64) {
				for _, token := range checked(tokens) {
					got := contents(rows, 2*token*width, 2*width)
					for i := range width {
						head, pair := i/headSize*headSize, i%(headSize/2)
						x, y := element(before, token*width+head+pair), element(before, token*width+head+pair+headSize/2)
						cos, sin := float64(table[token*headSize+pair]), float64(table[token*headSize+headSize/2+pair])
						want := x*cos - y*sin
						if i%headSize >= headSize/2 {
							want = y*cos + x*sin
						}
						worst = max(worst, units(element(got, i), want))
					}
				}
				return worst
			},
		}
	}}
}
