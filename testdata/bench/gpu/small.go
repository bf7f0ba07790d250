package main

import (
	"bytes"
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
	silu := rowwise{kernel: "silu_and_mul", rows: pick(2048, 3), n: pick(14336, 264)}
	silu.inputs = 2 * silu.n
	silu.launch = func(r rowwise, rows int, out, in, _ cuda.Pointer) kernel {
		return kernels.Activation{Function: kernels.SiLUAndMul, Out: out, In: in, Rows: rows, N: r.n}
	}
	silu.want = func(r rowwise, in, _ func(int) float64) []float64 {
		want := make([]float64, r.n)
		for j := range want {
			want[j] = in(j) / (1 + math.Exp(-in(j))) * in(r.n+j)
		}
		return want
	}
	return []benchmark{norm, silu}
}
