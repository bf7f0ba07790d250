package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/half"
)

// A bench is a GPU, and memory on it that is freed after each case. Its methods panic with a failure if the
// driver returns an error.
type bench struct {
	small      bool
	version    int
	context    *cuda.Context
	stream     *cuda.Stream
	set        *kernels.Set
	start, end *cuda.Event
	memory     closers // of the case
	matrix     *matrix // of the last product
	filler     *cuda.Memory
	rng        *rand.Rand
}

// closers are closed together.
type closers []interface{ Close() error }

func (c *closers) close() (err error) {
	for _, one := range *c {
		err = errors.Join(err, one.Close())
	}
	*c = nil
	return err
}

// A failure is the value of a panic that ends a case: measure recovers it and returns the error.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// mustGet returns v. It panics with a failure if err is not nil.
func mustGet[T any](v T, err error) T {
	must(err)
	return v
}

func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.error
	default:
		panic(p)
	}
}

func newBench(library string, small bool) (b *bench, err error) {
	defer caught(&err)
	driver := mustGet(cuda.Open(library))
	b = &bench{small: small, version: driver.Version(), rng: rand.New(rand.NewPCG(1, 2)), context: mustGet(driver.NewContext(0))}
	b.stream, b.start, b.end = mustGet(b.context.NewStream()), mustGet(b.context.NewEvent(true)), mustGet(b.context.NewEvent(true))
	b.set = mustGet(kernels.Load(b.context))
	size := 1 << 30
	if small {
		size = 1 << 10
	}
	b.filler = mustGet(b.context.Alloc(size))
	return b, nil
}

func (b *bench) close() error {
	return errors.Join(b.closeMatrix(), b.filler.Close(), b.set.Close(), b.start.Close(), b.end.Close(), b.stream.Close(), b.context.Close())
}

// broken reports whether the context is unusable after the error err. A context is unusable after a kernel has
// failed.
func (b *bench) broken(err error) bool {
	var driver *cuda.Error
	return errors.As(err, &driver) && b.context.Synchronize() != nil
}

// A benchmark is a kernel with sizes.
type benchmark struct {
	name    string // what compare.py reads: the kernel, and name=value for each size
	goal    goal   // may be zero
	prepare func(b *bench) prepared
}

type kernel interface {
	Launch(*kernels.Set, *cuda.Stream) error
}

// prepared is a benchmark whose inputs are on the GPU.
type prepared struct {
	kernel       kernel
	bytes, flops float64 // moved and computed by a launch
	// others are the same kernel with copies of the weights. A step reads other weights between two reads of the same ones, so the
	// weights must come from memory, not from the L2 cache.
	others []kernel
	// check returns the largest error in the outputs of the first launch, as a multiple of the allowed error.
	// All outputs are NaN before the launch.
	check func() float64
	// batchInvariant computes some rows again without the other rows. It reports whether their outputs have the same
	// bits as with the other rows. batchInvariant may be nil.
	batchInvariant func() bool
}

type result struct {
	seconds, bytes, flops, error float64
	invariance                   string
}

const (
	equal     = "equal"
	different = "DIFFERENT"
)

func (b *bench) measure(c benchmark) (r result, err error) {
	defer func() { err = errors.Join(err, b.memory.close()) }()
	defer caught(&err)
	p := c.prepare(b)
	b.run(p.kernel)
	r = result{bytes: p.bytes, flops: p.flops, error: p.check(), invariance: "-"}
	if p.batchInvariant != nil {
		if r.invariance = equal; !p.batchInvariant() {
			r.invariance = different
		}
	}
	all := append([]kernel{p.kernel}, p.others...)
	r.seconds = b.time(func(i int) error { return all[i%len(all)].Launch(b.set, b.stream) })
	return r, nil
}

func (b *bench) run(k kernel) {
	must(errors.Join(k.Launch(b.set, b.stream), b.stream.Synchronize()))
}

// repeats reports whether a kernel writes the bytes that are now in memory.
func (b *bench) repeats(k kernel, memory *cuda.Memory, offset, size int) bool {
	before := contents(memory, offset, size)
	b.fill(memory, offset, size)
	b.run(k)
	return bytes.Equal(before, contents(memory, offset, size))
}

// time returns the median time of a launch, in seconds. The parameter of launch counts the launches.
//
// time measures rounds of 1 to 200 launches. A round takes about 3 ms if this number of launches allows it. There are 9
// rounds, or fewer if 9 rounds would take more than 0.3 s. With b.small there is one round of one launch. A round is
// launched from the context's thread, while the GPU is busy with other work, so that the GPU does not wait for the host.
func (b *bench) time(launch func(i int) error) float64 {
	count := 0
	round := func(launches int) float64 {
		must(b.context.Do(func() error {
			errs := []error{b.stream.Fill(b.filler, 0, b.filler.Size(), 0), b.stream.Fill(b.filler, 0, b.filler.Size(), 0), b.stream.Record(b.start)}
			for range launches {
				errs = append(errs, launch(count))
				count++
			}
			return errors.Join(append(errs, b.stream.Record(b.end), b.end.Synchronize())...)
		}))
		return float64(mustGet(b.end.Elapsed(b.start))) / 1e3 / float64(launches)
	}
	rounds, launches := 9, 1
	if b.small {
		rounds = 1
	} else {
		first := round(3)
		launches = max(1, min(200, int(3e-3/first)))
		rounds = max(1, min(rounds, int(0.3/(first*float64(launches)))))
	}
	var times []float64
	for range rounds {
		times = append(times, round(launches))
	}
	slices.Sort(times)
	return max(times[len(times)/2], 1e-9)
}

// copyRate returns the rate of a copy inside the GPU, in bytes per second. Each byte counts twice, because it is read
// and written.
func (b *bench) copyRate() (rate float64, err error) {
	defer func() { err = errors.Join(err, b.memory.close()) }()
	defer caught(&err)
	size := 2 << 30
	if b.small {
		size = 1 << 16
	}
	p := b.alloc(2 * size)
	return 2 * float64(size) / b.time(func(int) error { return b.stream.Copy(p, size, p, 0, size) }), nil
}

// alloc returns memory that is freed after the case. All its bytes are 0xff, so that it has NaN whether it is read
// as numbers of 16, 32 or 64 bits.
func (b *bench) alloc(size int) *cuda.Memory {
	m := mustGet(b.context.Alloc(size))
	b.memory = append(b.memory, m)
	b.fill(m, 0, size)
	return m
}

func (b *bench) fill(m *cuda.Memory, offset, size int) {
	must(errors.Join(b.stream.Fill(m, offset, size, 0xff), b.stream.Synchronize()))
}

func (b *bench) upload(contents []byte) *cuda.Memory {
	m := b.alloc(len(contents))
	must(m.Write(0, contents))
	return m
}

func contents(m *cuda.Memory, offset, size int) []byte {
	got := make([]byte, size)
	must(m.Read(offset, got))
	return got
}

// random returns the bytes of n random F16 numbers with standard deviation 1, and a copy of them on the GPU. To save
// time, only the first 2^22 + 8 numbers are drawn, and the array then repeats them. This number is not a multiple of the
// length of a long row, so a repetition begins at another place of a row than the previous one.
func (b *bench) random(n int) ([]byte, *cuda.Memory) {
	return b.randomOf(kernels.CacheAuto, n)
}

func (b *bench) randomOf(cache kernels.CacheType, n int) ([]byte, *cuda.Memory) {
	kind := cpuTypes[cache]
	period, contents := (1<<22+8)*kind.Size(), make([]byte, kind.Size()*n)
	for offset := 0; offset < min(len(contents), period); offset += kind.Size() {
		kind.Store(unsafe.Pointer(&contents[offset]), float32(b.rng.NormFloat64()))
	}
	for offset := period; offset < len(contents); offset += period {
		copy(contents[offset:], contents[:period])
	}
	return contents, b.upload(contents)
}

var cpuTypes = map[kernels.CacheType]attention.DType{kernels.CacheAuto: attention.F16, kernels.CacheE4M3: attention.E4M3, kernels.CacheE5M2: attention.E5M2}

func (b *bench) numbers(list any) cuda.Pointer {
	return b.upload(mustGet(binary.Append(nil, binary.LittleEndian, list))).Pointer()
}

// element returns number i of the F16 numbers in contents.
func element(contents []byte, i int) float64 {
	return float64(half.FromF16(binary.LittleEndian.Uint16(contents[2*i:])))
}

// units returns the difference between got and want, divided by
//
//	1.01 * 2^-10 * max(|want|, 2^-14) + 1e-6
//
// The factor 2^-10 is for rounding to F16: an F16 number and the next one differ by at most 2^-10 of their size. The
// divisor is a little larger, because kernels also round to float32.
func units(got, want float64) float64 {
	return math.Abs(got-want) / (max(math.Abs(want), 0x1p-14)*0x1p-10*1.01 + 1e-6)
}
