package attention

import (
	"unsafe"

	"llmmemory/internal/serving/parallel"
)

// partitionSize is the number of tokens of context in one partition, as in vLLM's
// paged_attention_v2. Partitions start at multiples of it.
const partitionSize = 512

// A Runner computes attention on the workers of a pool. Its scratch memory grows
// with the largest batch and is reused. It is for one goroutine at a time.
type Runner struct {
	pool    *parallel.Pool
	kernels kernels
	workers []scratch

	// Of the call that runs.
	cache    *Cache
	batch    *Batch
	group    int // query heads of a KV head
	plan     plan
	partials []float32 // records of partitions, to be merged by a reduction
	prefix   []float32 // records of the common prefix, by query token and head
	reducing bool
}

// NewRunner makes a Runner on a pool, which may be shared with others.
func NewRunner(pool *parallel.Pool) *Runner {
	r := &Runner{pool: pool, kernels: fastest, workers: make([]scratch, pool.Size())}
	for i := range r.workers {
		w := &r.workers[i]
		w.call.ahead = unsafe.Pointer(&w.ahead[0])
		w.call.room = unsafe.Pointer(&w.room[-uintptr(unsafe.Pointer(&w.room))&63])
	}
	return r
}

// Forward computes b.Out. The error wraps ErrArgument; nothing has been computed
// then.
func (r *Runner) Forward(c *Cache, b *Batch) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := b.check(c); err != nil {
		return err
	}
	r.cache, r.batch, r.group = c, b, b.NumHeads/c.NumKVHeads
	r.reducing = false // also after a call that panicked
	r.plan.make(c, b, r.pool.Size())
	record := recordSize(c)
	r.partials = grow(r.partials, r.plan.records*record)
	if r.plan.prefixParts > 0 {
		r.prefix = grow(r.prefix, int(b.QueryStart[b.seqs()])*b.NumHeads*record)
	}
	for _, items := range [][]item{r.plan.prefix, r.plan.items} {
		r.plan.running = items
		r.pool.Run(len(items), r)
	}
	r.reducing = true
	r.pool.Run(len(r.plan.reductions), r)
	r.reducing = false
	r.cache, r.batch = nil, nil
	return nil
}

// Do computes an item or a reduction of Forward; see parallel.Task.
func (r *Runner) Do(worker, i int) {
	w := &r.workers[worker]
	if r.reducing {
		r.reduce(w, &r.plan.reductions[i])
		return
	}
	r.run(w, &r.plan.running[i])
}

// run computes the rows of an item over its partitions.
func (r *Runner) run(w *scratch, it *item) {
	r.setRows(w, it)
	for part := it.part0; part < it.part1; part++ {
		if !w.reaches(part) {
			continue // a partition of the common prefix, before all windows
		}
		r.attend(w, it, part)
		if it.kind == itemRun {
			r.save(w, it, part)
		} else {
			r.merge(w)
		}
	}
	switch it.kind {
	case itemWhole:
		r.finish(w)
	case itemPrefix:
		r.savePrefix(w)
	}
}

// attend computes the results of a partition for the rows of w, one KV head
// after the other.
func (r *Runner) attend(w *scratch, it *item, part int) {
	each := len(w.rows) / it.heads
	for h := range it.heads {
		r0, r1 := h*each, (h+1)*each
		if r.fused(it, each) && r.attendTiles(w, it, h, part) {
			continue
		}
		r.expect(w, it, h, part)
		r.attendPanel(w, max(0, it.seq), it.kvHead+h, r0, r1, part)
	}
}

// recordSize is the number of floats of a result: m, l, and from recordHead on o, which shares no
// cache line with another. The kernels write to a multiple of 64 floats of o.
func recordSize(c *Cache) int { return recordHead + (c.HeadSize+63)&^63 }

const recordHead = 16

// padded is the length of a value in scratch memory: whole chunks.
func padded(headSize int) int { return (headSize + chunk - 1) / chunk * chunk }

// grow returns a slice of n elements, in the memory of s if that is large enough. Their
// contents are undefined.
func grow[E any](s []E, n int) []E {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]E, n, n+n/4)
}
