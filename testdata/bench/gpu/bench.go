package main

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
)

// A bench is a GPU with memory that is freed after each case.
type bench struct {
	small      bool
	version    int
	context    *cuda.Context
	stream     *cuda.Stream
	set        *kernels.Set
	start, end *cuda.Event
	memory     []closer // of the case
	matrix     *matrix  // of the last product
	rng        *rand.Rand
}

type closer interface{ Close() error }

func newBench(library string, small bool) (*bench, error) {
	driver, err := cuda.Open(library)
	if err != nil {
		return nil, err
	}
	b := &bench{small: small, version: driver.Version(), rng: rand.New(rand.NewPCG(1, 2))}
	if b.context, err = driver.NewContext(0); err != nil {
		return nil, err
	}
	if b.stream, err = b.context.NewStream(); err != nil {
		return nil, err
	}
	if b.start, err = b.context.NewEvent(true); err != nil {
		return nil, err
	}
	if b.end, err = b.context.NewEvent(true); err != nil {
		return nil, err
	}
	b.set, err = kernels.Load(b.context)
	return b, err
}

func (b *bench) close() error {
	return errors.Join(b.closeMatrix(), b.set.Close(), b.start.Close(), b.end.Close(), b.stream.Close(), b.context.Close())
}

// broken reports whether a kernel has failed, after which the context is unusable.
func (b *bench) broken(err error) bool {
	var driver *cuda.Error
	return errors.As(err, &driver) && b.context.Synchronize() != nil
}

// A benchmark is a kernel with sizes.
type benchmark interface {
	name() string // what compare.py reads: the kernel, and name=value for each size
	// prepare makes the inputs.
	prepare(b *bench) (prepared, error)
}

// prepared is a benchmark whose inputs are on the GPU.
type prepared struct {
	bytes, flops float64 // moved and computed by a launch
	launch       func() error
	// check returns the largest error in the outputs, 1 being what is allowed. The outputs were NaN before a launch.
	check func() (float64, error)
	// alone reports whether some rows have the same bits alone as in the batch. It may be nil.
	alone func() (bool, error)
}

type result struct {
	seconds, bytes, flops, error float64
	alone                        string
}

const (
	equal     = "equal"
	different = "DIFFERENT"
)

func (b *bench) measure(c benchmark) (r result, err error) {
	defer func() {
		for _, m := range b.memory {
			err = errors.Join(err, m.Close())
		}
		b.memory = nil
	}()
	p, err := c.prepare(b)
	if err != nil {
		return r, err
	}
	if err := errors.Join(p.launch(), b.stream.Synchronize()); err != nil {
		return r, err
	}
	r = result{bytes: p.bytes, flops: p.flops, alone: "-"}
	if r.error, err = p.check(); err != nil {
		return r, err
	}
	if p.alone != nil {
		same, err := p.alone()
		if err != nil {
			return r, err
		}
		if r.alone = equal; !same {
			r.alone = different
		}
	}
	r.seconds, err = b.time(p.launch)
	return r, err
}

// time returns the median time of a launch, over rounds of as many launches as take some 3 ms, in 0.3 s or one round.
func (b *bench) time(launch func() error) (float64, error) {
	round := func(launches int) (float64, error) {
		err := b.stream.Record(b.start)
		for range launches {
			err = errors.Join(err, launch())
		}
		if err = errors.Join(err, b.stream.Record(b.end), b.end.Synchronize()); err != nil {
			return 0, err
		}
		ms, err := b.end.Elapsed(b.start)
		return float64(ms) / 1e3 / float64(launches), err
	}
	rounds, launches := 9, 1
	if b.small {
		rounds = 1
	} else {
		first, err := round(3)
		if err != nil {
			return 0, err
		}
		launches = max(1, min(200, int(3e-3/first)))
		rounds = max(1, min(rounds, int(0.3/(first*float64(launches)))))
	}
	var times []float64
	for range rounds {
		t, err := round(launches)
		if err != nil {
			return 0, err
		}
		times = append(times, t)
	}
	slices.Sort(times)
	return max(times[len(times)/2], 1e-9), nil
}

// copyRate returns the bytes per second that a copy inside the GPU reads and writes.
func (b *bench) copyRate() (float64, error) {
	size := b.pick(2<<30, 1<<16)
	p, err := b.alloc(2 * size)
	if err != nil {
		return 0, err
	}
	defer func() { b.memory = nil }()
	t, err := b.time(func() error { return b.stream.Copy(p, size, p, 0, size) })
	return 2 * float64(size) / t, errors.Join(err, p.Close())
}

// pick returns a size, or one for tests.
func (b *bench) pick(normal, small int) int {
	if b.small {
		return small
	}
	return normal
}

// alloc returns memory for this case in which every number is NaN.
func (b *bench) alloc(size int) (*cuda.Memory, error) {
	m, err := b.context.Alloc(size)
	if err != nil {
		return nil, err
	}
	b.memory = append(b.memory, m)
	return m, errors.Join(b.stream.Fill(m, 0, size, 0xff), b.stream.Synchronize())
}

func (b *bench) upload(contents []byte) (*cuda.Memory, error) {
	m, err := b.alloc(len(contents))
	if err != nil {
		return nil, err
	}
	return m, m.Write(0, contents)
}

// random returns n elements of 16 bits (F16), which are about 1, as they are in memory and on the GPU. Long arrays repeat after some million
// elements, at an odd distance.
func (b *bench) random(n int) ([]byte, *cuda.Memory, error) {
	const period = 1<<22 + 8
	contents := make([]byte, 2*n)
	for i := range min(n, period) {
		binary.LittleEndian.PutUint16(contents[2*i:], half.ToF16(float32(b.rng.NormFloat64())))
	}
	for at := 2 * period; at < len(contents); at += 2 * period {
		copy(contents[at:], contents[:2*period])
	}
	m, err := b.upload(contents)
	return contents, m, err
}

// int32s uploads numbers.
func (b *bench) int32s(numbers []int32) (*cuda.Memory, error) {
	contents := make([]byte, 0, 4*len(numbers))
	for _, x := range numbers {
		contents = binary.LittleEndian.AppendUint32(contents, uint32(x))
	}
	return b.upload(contents)
}

// at returns an element of memory that random made.
func at(contents []byte, i int) float64 {
	return float64(half.FromF16(binary.LittleEndian.Uint16(contents[2*i:])))
}

// units returns the difference of two numbers in units in the last place of F16, plus what float32 rounds.
func units(got, want float64) float64 {
	return math.Abs(got-want) / (max(math.Abs(want), 0x1p-14)*0x1p-10*1.01 + 1e-6)
}
