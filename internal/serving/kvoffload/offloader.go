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
	BlockBytes int // bytes of a block over all layers and workers

	Stores bool // blocks are stored (vLLM's kv_role producer or both)
	Loads  bool // blocks are loaded (consumer or both)

	// After a block is stored, the Offloader assumes for some time that the tier still has it, and does not store it
	// again. This time is at least KnownFor and less than three times KnownFor. It is shorter if very many blocks are
	// stored. The assumption must end at some time, because tiers remove unused blocks. KnownFor is at most 10 minutes; 0
	// means 10 minutes.
	KnownFor time.Duration

	QueueBytes int         // limit of the bytes in blocks that wait to be stored; 0 means 256 MiB. 4 blocks may always wait
	Log        *log.Logger // if not nil, logs failures and declined loads, each at most once a minute
}

// An Offloader stores and loads blocks in the background. Its methods are safe for concurrent use.
type Offloader struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc
	close  func() error // finish, which runs once

	queue chan stored
	free  chan Memory   // memory for blocks to store
	made  int           // memories made, in free or in use
	limit int           // of made
	loads chan struct{} // one element for each load in progress
	tasks sync.WaitGroup

	mu     sync.Mutex
	recent map[blockhash.Hash]bool // blocks stored or loaded since begun
	older  map[blockhash.Hash]bool // blocks stored or loaded in the period before
	begun  time.Time               // when recent was begun
	rate   rate
	logged map[string]time.Time // the last message about storing, looking for, loading or declining
	broken map[string]time.Time // the last failure of the same
	stats  Stats
}

// stored is a block in the queue.
type stored struct {
	block  blockhash.Hash
	memory Memory
}

// Stats are totals since New, except Queued and LoadRate.
type Stats struct {
	StoredBytes, LoadedBytes int64
	StoreTime, LoadTime      time.Duration
	Dropped                  int64 // blocks not stored because too many waited, or because storing had just failed
	Failures                 int64 // stores, searches and loads that failed
	Queued                   int   // blocks that wait to be stored
	Computed                 int64 // blocks found but not loaded, because computing them is estimated to be faster

	LoadRate float64 // recent blocks per second, or 0 if unknown
}

const (
	defaultQueueBytes = 256 << 20
	maxKnownFor       = 10 * time.Minute
	minQueuedBlocks   = 4
	maxRecent         = 1 << 16 // blocks in recent, from which on forgetOld begins a new one
	concurrentLoads   = 2
	logEvery          = time.Minute
	storeTimeout      = 10 * time.Second
	pauseAfterFailure = time.Second // in which Find returns 0, or, after a failed store, no memory for blocks is made

	// How long Close waits for the queue to be stored and for loads to end.
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
		config: c, limit: max(minQueuedBlocks, c.QueueBytes/max(1, c.BlockBytes)), loads: make(chan struct{}, concurrentLoads),
		recent: map[blockhash.Hash]bool{}, older: map[blockhash.Hash]bool{}, broken: map[string]time.Time{}, logged: map[string]time.Time{},
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.queue, o.free = make(chan stored, o.limit), make(chan Memory, o.limit)
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

// Close waits up to 10 seconds for the blocks in the queue to be stored and for loads to end, cancels those that have
// not ended, and closes the tier. Offer must not be called afterwards.
func (o *Offloader) Close() error { return o.close() }

// Stats returns the current statistics.
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

// Stores reports whether blocks are stored.
func (o *Offloader) Stores() bool { return o.config.Stores }

// Loads reports whether blocks are loaded.
func (o *Offloader) Loads() bool { return o.config.Loads }

// Offer stores a block in the background, unless it was stored or loaded recently, too many blocks wait to be stored,
// or storing has just failed and no memory was given back. Offer calls read to fill memory with the block before it
// returns.
func (o *Offloader) Offer(block blockhash.Hash, read func(dst []byte)) {
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
	o.queue <- stored{block, m} // never blocks: its capacity is the limit of memory
}

// memory returns memory for a block, if possible memory that was given back. Without such memory, it returns false if
// too many blocks wait to be stored, or if storing has just failed.
func (o *Offloader) memory() (m Memory, ok bool) {
	select {
	case m := <-o.free:
		return m, true
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == o.limit || time.Since(o.broken[storing]) < pauseAfterFailure {
		return Memory{}, false
	}
	o.made++
	return NewMemory(o.config.BlockBytes), true
}

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

// remember records that the tier has the blocks or will soon have them.
func (o *Offloader) remember(blocks ...blockhash.Hash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetOld()
	for _, b := range blocks {
		o.recent[b] = true
	}
}

// forgetOld forgets blocks that were remembered long ago, so that the Offloader stores them again if they are offered.
// It does so when o.recent is full (maxRecent) or has been in use for KnownFor. Then it forgets the blocks in o.older,
// moves the blocks in o.recent to o.older, and begins a new o.recent. If the old o.recent has been in use for
// 2*KnownFor, forgetOld forgets its blocks too.
func (o *Offloader) forgetOld() {
	now := time.Now()
	age := now.Sub(o.begun)
	if len(o.recent) < maxRecent && age < o.config.KnownFor {
		return
	}
	o.older, o.recent, o.begun = o.recent, map[blockhash.Hash]bool{}, now
	if age >= 2*o.config.KnownFor {
		clear(o.older)
	}
}

// forget notes that the tier does not have the blocks.
func (o *Offloader) forget(blocks ...blockhash.Hash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range blocks {
		delete(o.recent, b)
		delete(o.older, b)
	}
}

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

const (
	storing   = "storing"
	looking   = "looking for"
	loading   = "loading"
	declining = "declining"
)

// paused reports whether Find or Load has failed within the last second. With the pause, a tier that does not answer
// does not delay each request.
func (o *Offloader) paused() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.broken[looking]) < pauseAfterFailure || time.Since(o.broken[loading]) < pauseAfterFailure
}

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

// Find returns the number of leading blocks that a tier has. It returns 0 if loading these blocks would take longer
// than computing them, if Find or Load has failed within the last second, or if the Config has no Loads. compute is the
// time to compute all of the blocks, or 0 if unknown.
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

// decline counts and logs n blocks that a tier has but the server computes.
func (o *Offloader) decline(n int, loading, computing time.Duration) {
	o.mu.Lock()
	o.stats.Computed += int64(n)
	o.mu.Unlock()
	o.logf(declining, "%d blocks are computed, in about %v: loading them would take about %v", n, computing, loading)
}

// logf logs a message about doing, at most once a minute.
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

// Load reads blocks in the background. It calls write for each group of consecutive blocks that it has read. The
// parameter i of write is the index of the group's first block. When the load ends, Load calls done with the number of
// leading blocks that it has read.
//
// The parameter compute is the time to compute all of the blocks, or 0 if unknown. If the load takes longer than
// deadline(compute), it is cancelled.
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
		for n < len(blocks) { // in pieces, to use little memory
			piece := blocks[n:min(len(blocks), n+1+bytesPerMGet/max(1, o.config.BlockBytes))]
			dst := make([][]byte, len(piece)) // not reused: a cancelled read may still write there
			for i := range dst {
				dst[i] = make([]byte, o.config.BlockBytes)
			}
			came, err := o.config.Tier.Load(ctx, piece, dst)
			if came > 0 {
				write(n, dst[:came])
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

// deadline returns how long to wait for a tier: as long as computing the blocks would take, but at least minDeadline.
// If that time is unknown, it is unknownDeadline.
func deadline(compute time.Duration) time.Duration {
	if compute <= 0 {
		return unknownDeadline
	}
	return max(compute, minDeadline)
}

const (
	unknownDeadline = 2 * time.Second
	minDeadline     = 20 * time.Millisecond
	lookDeadline    = 2 * time.Second // for Count, also if computing takes longer
)

// loadTime estimates the time to load n blocks, or returns 0 if the rate is unknown.
func (o *Offloader) loadTime(n int) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rate.duration(float64(n))
}
