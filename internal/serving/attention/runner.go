package attention

import (
	"slices"
	"unsafe"

	"llmmemory/internal/serving/parallel"
)

// partitionSize is the number of tokens of a partition, as in vLLM's paged_attention_v2.
const partitionSize = 512

// A Runner computes attention on the workers of a pool. Its scratch memory grows to the largest batch and is reused.
// One goroutine may use it at a time.
type Runner struct {
	pool    *parallel.Pool
	kernels kernels
	workers []scratch

	// The current call of Forward.
	cache    *Cache
	batch    *Batch
	group    int // query heads per KV head
	plan     plan
	partials []float32 // records of partitions for the reductions
	prefix   []float32 // records of the common prefix, by query token and head
	reducing bool
}

// NewRunner returns a Runner that computes on pool. Other users may use the same pool.
func NewRunner(pool *parallel.Pool) *Runner {
	r := &Runner{pool: pool, kernels: fastest, workers: make([]scratch, pool.Size())}
	for i := range r.workers {
		w := &r.workers[i]
		w.args.prefetchList = unsafe.Pointer(&w.prefetchList[0])
		w.args.buffer = unsafe.Pointer(&w.buffer[-uintptr(unsafe.Pointer(&w.buffer))&63])
	}
	return r
}

// Forward computes b.Out. An error wraps ErrArgument; Forward has then computed nothing.
func (r *Runner) Forward(c *Cache, b *Batch) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := b.check(c); err != nil {
		return err
	}
	r.cache, r.batch, r.group = c, b, b.NumHeads/c.NumKVHeads
	r.reducing = false // an earlier call may have panicked
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

func (r *Runner) run(w *scratch, it *item) {
	r.setRows(w, it)
	for part := it.part0; part < it.part1; part++ {
		if w.start, w.end = attendedByAny(w.rows, part); w.start >= w.end {
			continue // this partition of the common prefix is before the windows of all rows
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

// attend computes, for each row of w, the result over the tokens of one partition. It takes one KV head after the
// other.
func (r *Runner) attend(w *scratch, it *item, part int) {
	rowsPerHead := len(w.rows) / it.heads
	for h := range it.heads {
		r0, r1 := h*rowsPerHead, (h+1)*rowsPerHead
		if r.readsInPlace(it, rowsPerHead) && r.attendTiles(w, it, h, part) {
			continue
		}
		r.listPrefetches(w, it, h, part)
		r.attendPanel(w, max(0, it.seq), it.kvHead+h, r0, r1, part)
	}
}

// recordSize returns the number of floats of a record. A record is the result of a row over some tokens: the largest
// logit m, the sum of the weights l, and the output o. m and l are the first two floats. o begins at recordHead, so
// that the o of two records share no cache line. The size of o is that of a value, rounded up to a multiple of 64,
// because the kernels write up to 64 floats at a time.
func recordSize(c *Cache) int { return recordHead + (c.ValueSize()+63)&^63 }

const recordHead = 16

// padded returns the number of floats that a value takes in scratch memory: its size, rounded up to a multiple of
// chunk.
func padded(valueSize int) int { return (valueSize + chunk - 1) / chunk * chunk }

// grow returns a slice of n elements, whose contents are undefined. It uses the memory of s if that is large enough.
func grow[E any](s []E, n int) []E { return slices.Grow(s[:0], n)[:n] }
