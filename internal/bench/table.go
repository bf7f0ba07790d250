package bench

import (
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"llmmemory/internal/vllm/blockhash"
)

// timer is what a case may stop while it prepares something.
type timer interface {
	StopTimer()
	StartTimer()
}

// A run does n operations.
type run func(t timer, n int)

// A figure is one line of the table.
type figure struct {
	work  string
	vllm  time.Duration // 0: not measured
	reach time.Duration
	setup func() run
}

func figures() []figure {
	ns, us := time.Nanosecond, time.Microsecond
	return []figure{
		{"get + free one block", 1010 * ns, 20 * ns, getFree},
		{"the same with an eviction and a re-insert", 1770 * ns, 100 * ns, func() run { return churn(1000) }},
		{"Allocate, decode, 256 running, per request", 3940 * ns, 40 * ns, func() run { return decode(256) }},
		{"look-up of 4,096 cached tokens", 161 * us, 4 * us, func() run { return lookup(4096) }},
		{"hashing 4,096 tokens, SHA-256", 500 * us, 40 * us, func() run { return hashing(4096, blockhash.LE{}) }},
		{"  sha256_cbor", 0, 40 * us, func() run { return hashing(4096, blockhash.CBOR("0")) }},
		{"  XXH3, 128 bits", 0, 0, func() run { return hashing(4096, blockhash.NewFast()) }},
		{"schedule of 256 decodes + update", 3300 * us, 25 * us, func() run { return step(256) }},
		{"  two steps in flight", 0, 30 * us, func() run { return steps(256, 1) }},
	}
}

// Print writes the table, the curves and the memory of a block.
func Print(w io.Writer, samples int) error {
	if samples < 1 {
		return fmt.Errorf("%d samples: want at least 1", samples)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fmt.Fprintf(w, "%-46s %10s %10s %10s\n", "work", "vLLM V1", "to reach", "measured")
	for _, f := range figures() {
		fmt.Fprintf(w, "%-46s %10s %10s %10s\n", f.work, span(f.vllm), span(f.reach), span(measure(f.setup(), samples)))
	}
	bytes, scanned := perBlock(1_000_000)
	fmt.Fprintf(w, "%-46s %10s %10s %8.1f B\n", "memory per block, 1,000,000 blocks, all cached", "~500 B", "96 B", bytes)
	fmt.Fprintf(w, "%-46s %10s %10s %8.1f B\n", "  of these for the collector to scan", "", "0 B", scanned)
	fmt.Fprintf(w, "%-46s %10s %10s %10.2f\n", "allocations in a steady decode step of 256", "", "0", allocations(256, 200))
	curve(w, samples, "get + free with eviction, by blocks, ns", []int{1000, 10_000, 100_000, 1_000_000}, churn, false)
	curve(w, samples, "step, by running requests, ns for each", []int{16, 64, 256, 1024}, step, true)
	return nil
}

// curve prints a cost by size, and how far it spreads.
func curve(w io.Writer, samples int, title string, sizes []int, setup func(int) run, each bool) {
	fmt.Fprintf(w, "\n%s\n", title)
	var costs []float64
	for _, n := range sizes {
		cost := float64(measure(setup(n), samples))
		if each {
			cost /= float64(n)
		}
		costs = append(costs, cost)
		fmt.Fprintf(w, "%12d %10.1f\n", n, cost)
	}
	fmt.Fprintf(w, "%12s %10.1f ×\n", "spread", slices.Max(costs)/slices.Min(costs))
}

func span(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.0f ns", float64(d))
	}
	return fmt.Sprintf("%.1f µs", float64(d)/1e3)
}

// A clock adds up the processor's time between StartTimer and StopTimer.
type clock struct {
	total, since time.Duration
}

func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}

func (c *clock) StartTimer() { c.since = processorTime() }
func (c *clock) StopTimer()  { c.total += processorTime() - c.since }

// timeOf is how long n operations take.
func timeOf(r run, n int) time.Duration {
	var c clock
	c.StartTimer()
	r(&c, n)
	c.StopTimer()
	return c.total
}

// sample is how long a sample takes: long against the clock's own cost.
const sample = 20 * time.Millisecond

// measure returns the median time of an operation.
func measure(r run, samples int) time.Duration {
	n := 1
	for timeOf(r, n) < sample/2 {
		n *= 2
	}
	var times []time.Duration
	for range samples {
		times = append(times, timeOf(r, n))
	}
	slices.Sort(times)
	return times[len(times)/2] / time.Duration(n)
}

// perBlock returns the bytes of a block of a pool whose blocks all have keys, and how many of
// these bytes the collector scans.
func perBlock(blocks int) (bytes, scanned float64) {
	hashes := hashed(blocks)
	heap, scan := heapBytes()
	p := newPool(blocks)
	ids := make([]int32, 1)
	for i := range blocks - 1 {
		got, err := p.Get(ids[:0], 1)
		must(err)
		p.Register(view(hashes, i), got, 0, 1, blockSize, 0, nil)
	}
	heapAfter, scanAfter := heapBytes()
	runtime.KeepAlive(hashes)
	runtime.KeepAlive(p)
	return float64(heapAfter-heap) / float64(blocks), max(0, float64(int64(scanAfter)-int64(scan))/float64(blocks))
}

func heapBytes() (heap, scan uint64) {
	runtime.GC()
	runtime.GC()
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// allocations is the mean of a decode step.
func allocations(running, steps int) float64 {
	d := newDecoder(running, 0)
	d.refill()
	d.one()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		d.one()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(steps)
}
