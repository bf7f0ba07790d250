package kvoffload

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	"llmmemory/internal/scheduling/blockhash"
)

// Config says how an Offloader works.
type Config struct {
	Tier       Tier
	BlockBytes int // of a block over all layers and workers

	Stores bool // blocks are stored (vLLM's kv_role producer or both)
	Loads  bool // blocks are loaded (consumer or both)

	// KnownFor is how long a block counts as stored. After that a request that uses the block stores it again
	// if the tier has removed it: tiers remove unused blocks. At most 10 minutes; 0 means 10 minutes.
	KnownFor time.Duration

	QueueBytes int         // blocks that wait to be stored, at most; 0: 256 MB
	Log        *log.Logger // of failures and of what is not worth loading, each once a minute at most; nil: nowhere
}

// An Offloader stores and loads blocks in the background. Its methods are safe for concurrent use.
type Offloader struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc
	close  func() error // once

	queue chan stored
	free  chan Memory // memory of blocks to be stored
	made  int         // how many there are
	most  int
	loads chan struct{} // a place for each load that reads
	tasks sync.WaitGroup

	mu     sync.Mutex
	recent map[blockhash.Hash]bool // stored or loaded lately
	older  map[blockhash.Hash]bool // before that
	since  time.Time               // of recent
	rate   rate
	logged map[string]time.Time // when something was logged last, by what was being done
	broken map[string]time.Time // when that failed last
	stats  Stats
}

// stored is a block to be stored.
type stored struct {
	block  blockhash.Hash
	memory Memory
}

// Stats are counted from the beginning, except Queued.
type Stats struct {
	StoredBytes, LoadedBytes int64
	StoreTime, LoadTime      time.Duration
	Dropped                  int64 // blocks that were not stored, because the tier was too slow
	Failures                 int64 // stores and loads that failed
	Queued                   int   // blocks that wait to be stored
	Computed                 int64 // blocks that were found, and not loaded because computing them is faster

	LoadRate float64 // blocks a second, lately; 0: not known
}

const (
	defaultQueueBytes = 256 << 20
	maxKnownFor       = 10 * time.Minute
	minQueuedBlocks   = 4
	maxRecent         = 1 << 16 // names of blocks that are known to be stored
	concurrentLoads   = 2
	logEvery          = time.Minute
	storeTimeout      = 10 * time.Second
	pauseAfterFailure = time.Second // in which a tier is not asked for the same

	// Draining waits at most this long until the queue is stored.
	flushTimeout = 10 * time.Second
)

// New starts an Offloader, which owns the tier.
func New(c Config) *Offloader {
	if c.QueueBytes == 0 {
		c.QueueBytes = defaultQueueBytes
	}
	if c.KnownFor == 0 {
		c.KnownFor = maxKnownFor
	}
	c.KnownFor = min(c.KnownFor, maxKnownFor)
	o := &Offloader{
		config: c, most: max(minQueuedBlocks, c.QueueBytes/max(1, c.BlockBytes)), loads: make(chan struct{}, concurrentLoads),
		recent: map[blockhash.Hash]bool{}, older: map[blockhash.Hash]bool{}, broken: map[string]time.Time{}, logged: map[string]time.Time{},
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.queue, o.free = make(chan stored, o.most), make(chan Memory, o.most)
	o.close = sync.OnceValue(o.finish)
	o.tasks.Go(o.store)
	return o
}

func (o *Offloader) finish() error {
	close(o.queue)
	timer := time.AfterFunc(flushTimeout, o.cancel)
	defer timer.Stop()
	o.tasks.Wait()
	o.cancel()
	return o.config.Tier.Close()
}

// Close waits some seconds for the blocks in the queue to be stored, gives loads up, and closes the tier.
// Nothing may be offered any more.
func (o *Offloader) Close() error { return o.close() }

// Stats returns the present figures.
func (o *Offloader) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Queued = len(o.queue)
	if one := o.rate.duration(1); one > 0 {
		s.LoadRate = 1 / one.Seconds()
	}
	return s
}

// Stores reports whether blocks are stored, Loads whether they are loaded.
func (o *Offloader) Stores() bool { return o.config.Stores }

// Loads reports whether blocks are loaded.
func (o *Offloader) Loads() bool { return o.config.Loads }

// Offer stores a block in the background, unless that was done lately or the tier is too slow. read fills
// memory with the block before Offer returns.
func (o *Offloader) Offer(block blockhash.Hash, read func(to []byte)) {
	if !o.config.Stores || o.known(block) {
		return
	}
	m, ok := o.memory()
	if !ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.stats.Dropped++
		return
	}
	read(m.Block())
	o.remember(block)
	o.queue <- stored{block, m} // has room for all memory there is
}

// memory returns memory for a block, unless too many blocks wait to be stored.
func (o *Offloader) memory() (m Memory, ok bool) {
	select {
	case m := <-o.free:
		return m, true
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == o.most || time.Since(o.broken[storing]) < pauseAfterFailure {
		return Memory{}, false
	}
	o.made++
	return NewMemory(o.config.BlockBytes), true
}

// giveBack takes memory back from the tier, which still uses it if storing was given up.
func (o *Offloader) giveBack(m Memory, unused bool) {
	if unused {
		o.free <- m
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made--
}

func (o *Offloader) known(block blockhash.Hash) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetOld()
	return o.recent[block] || o.older[block]
}

// remember notes that the tier has blocks, or will.
func (o *Offloader) remember(blocks ...blockhash.Hash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetOld()
	for _, b := range blocks {
		o.recent[b] = true
	}
}

// forgetOld forgets the older half of what is remembered when there is too much, or it was too long ago.
func (o *Offloader) forgetOld() {
	if now := time.Now(); len(o.recent) >= maxRecent || now.Sub(o.since) >= o.config.KnownFor {
		o.recent, o.older, o.since = map[blockhash.Hash]bool{}, o.recent, now
	}
}

// forget notes that the tier does not have blocks.
func (o *Offloader) forget(blocks ...blockhash.Hash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range blocks {
		delete(o.recent, b)
		delete(o.older, b)
	}
}

// store stores the blocks in the queue.
func (o *Offloader) store() {
	for s := range o.queue {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(o.ctx, storeTimeout)
		err := o.config.Tier.Store(ctx, s.block, s.memory)
		o.giveBack(s.memory, ctx.Err() == nil)
		cancel()
		if err != nil {
			o.forget(s.block)
			o.failed(storing, err)
			continue
		}
		o.mu.Lock()
		o.stats.StoredBytes += int64(s.memory.size)
		o.stats.StoreTime += time.Since(begin)
		o.mu.Unlock()
	}
}

// What an Offloader does with blocks, for messages.
const (
	storing   = "storing"
	looking   = "looking for"
	loading   = "loading"
	declining = "declining"
)

// paused reports whether looking or loading has failed a moment ago. A tier that is gone costs a request
// its deadline, and not every request.
func (o *Offloader) paused() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.broken[looking]) < pauseAfterFailure || time.Since(o.broken[loading]) < pauseAfterFailure
}

// failed counts and logs an error.
func (o *Offloader) failed(doing string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	o.mu.Lock()
	o.stats.Failures++
	if !errors.Is(err, ErrDamaged) {
		o.broken[doing] = time.Now()
	}
	o.mu.Unlock()
	o.logf(doing, "%s keys and values: %v; they are computed instead", doing, err)
}

// Find returns how many of the blocks can be loaded, from the first one on, and are faster to load than to
// compute. compute is how long computing all of them takes; 0: not known.
func (o *Offloader) Find(blocks []blockhash.Hash, compute time.Duration) int {
	if !o.config.Loads || len(blocks) == 0 || o.paused() {
		return 0
	}
	ctx, cancel := context.WithTimeout(o.ctx, min(deadline(compute), lookDeadline))
	defer cancel()
	n, err := o.config.Tier.Count(ctx, blocks)
	n = min(n, len(blocks))
	if err != nil {
		o.failed(looking, err)
	} else {
		o.forget(blocks[n:]...)
	}
	computing := compute * time.Duration(n) / time.Duration(len(blocks))
	if took := o.loadTime(n); compute > 0 && took > computing {
		o.decline(n, took, computing)
		return 0
	}
	return n
}

// decline counts and logs that blocks are computed, though a tier has them.
func (o *Offloader) decline(n int, loading, computing time.Duration) {
	o.mu.Lock()
	o.stats.Computed += int64(n)
	o.mu.Unlock()
	o.logf(declining, "%d blocks are computed, in about %v: loading them would take about %v", n, computing, loading)
}

// logf logs what happened in doing something, once a minute at most.
func (o *Offloader) logf(doing, format string, args ...any) {
	o.mu.Lock()
	quiet := o.config.Log == nil || time.Since(o.logged[doing]) < logEvery
	if !quiet {
		o.logged[doing] = time.Now()
	}
	o.mu.Unlock()
	if !quiet {
		o.config.Log.Printf(format, args...)
	}
}

// Load reads blocks, in the background and some at a time. It calls write with those that came, the first of which
// is block i, and then done with how many came, from the first one on. compute is as in Find: a load that takes longer
// than computing is given up.
func (o *Offloader) Load(
	blocks []blockhash.Hash, compute time.Duration, write func(i int, data [][]byte), done func(n int),
) {
	o.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(o.ctx, deadline(compute))
		defer cancel()
		n := 0
		defer func() { done(n) }()
		select {
		case o.loads <- struct{}{}:
			defer func() { <-o.loads }()
		case <-ctx.Done():
			return
		}
		begin := time.Now()
		for n < len(blocks) { // in pieces, which need little memory
			piece := blocks[n:min(len(blocks), n+1+bytesPerMGet/max(1, o.config.BlockBytes))]
			to := make([][]byte, len(piece)) // not used again: a read that is given up may still write there
			for i := range to {
				to[i] = make([]byte, o.config.BlockBytes)
			}
			came, err := o.config.Tier.Load(ctx, piece, to)
			if came > 0 {
				write(n, to[:came])
			}
			n += came
			if err != nil {
				o.failed(loading, err)
			}
			if came < len(piece) {
				o.forget(blocks[n:]...)
				break
			}
		}
		o.loaded(blocks[:n], time.Since(begin))
	})
}

// loaded counts blocks that came in a time.
func (o *Offloader) loaded(blocks []blockhash.Hash, took time.Duration) {
	if len(blocks) == 0 {
		return
	}
	o.remember(blocks...)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats.LoadedBytes += int64(len(blocks) * o.config.BlockBytes)
	o.stats.LoadTime += took
	o.rate.add(float64(len(blocks)), took)
}

// deadline is how long to wait for a tier: as long as computing takes.
func deadline(compute time.Duration) time.Duration {
	if compute <= 0 {
		return unknownDeadline
	}
	return max(compute, minDeadline)
}

const (
	unknownDeadline = 2 * time.Second
	minDeadline     = 20 * time.Millisecond
	lookDeadline    = 2 * time.Second // a tier that takes longer to say what it has is not asked for it
)

// loadTime is how long loading n blocks takes, as far as is known.
func (o *Offloader) loadTime(n int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rate.duration(float64(n))
}
