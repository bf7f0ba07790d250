package course

import (
	"unsafe"
)

// A Library has the six calls of llm_memory.h and the two batch calls of llm_memory_ext.h, for any number of engines and
// threads.
// It can be used as soon as Memory is set.
//
// Calls on one engine are serialised by one of 64 locks, which the engine's address selects. Calls on different
// engines rarely wait for each other.
type Library struct {
	Memory Memory
	Strict bool // always walk the list, without a cache (LLM_MEMORY_STRICT=1)
	Tidy   bool // keep no copies of the host's pointers after a call, for leak checkers

	cores [cores]core
	index index
}

// With 64 cores, the probability that two of 8 engines share one is 0.37. The array of 64 cores takes about 107 KiB of
// address space, but the library touches only the memory of cores in use.
const (
	coreBits = 6
	cores    = 1 << coreBits
)

// A core runs one call at a time, on one of the engines that coreOf assigns to it.
type core struct {
	mu    lock
	lib   *Library
	cache lookupCache
	order order

	// The fields below have the data of the current call. As local variables they would be allocated on the heap,
	// because they are passed to Memory.
	chunks [2 + L1Size]Chunk
	fresh  [MaxLogicalBlocks]int32
	batch  journal
}

func (l *Library) lock(e *Engine) *core {
	number := coreOf(e)
	c := &l.cores[number]
	c.mu.Lock()
	if c.lib == nil {
		c.lib = l
		c.cache.core, c.cache.index = number, &l.index
	}
	return c
}

func (c *core) unlock() {
	if c.lib.Tidy {
		c.tidy()
	}
	c.mu.Unlock()
}

// tidy erases the pointers that the core has copied. A conservative leak checker would take such a copy for a pointer
// of the host, and so would not report a chunk whose pointers the host has lost.
func (c *core) tidy() {
	clear(c.chunks[:])
	c.order.engine = nil // a search begins without a guess then
	c.batch.release()
	c.batch = journal{}
	wipeStack()
}

//go:noinline
func wipeStack() {
	var dead [1024]byte
	keep(&dead)
}

//go:noinline
func keep(*[1024]byte) {}

func coreOf(e *Engine) uint64 {
	return uint64(uintptr(unsafe.Pointer(e))) * 0x9e3779b97f4a7c15 >> (64 - coreBits)
}

// Init makes an engine on a pool of size bytes, which has size/BlockSize blocks (handout, task 1).
func (l *Library) Init(pool unsafe.Pointer, size uintptr) (*Engine, error) {
	c := l.lock(nil)
	e, err := c.init(pool, size)
	c.unlock()
	if err == nil && l.index.nonEmpty() {
		// The host may have freed an engine by hand, without llm_destroy. The new engine may have the same address,
		// and the cache may still have entries for the old engine.
		c = l.lock(e)
		c.cache.removeEngine(e)
		c.unlock()
	}
	return e, err
}

// Create adds a sequence with enough blocks for length records (handout, task 2).
func (l *Library) Create(e *Engine, id, length int32) (*Sequence, error) {
	if e == nil {
		return nil, ErrNilEngine
	}
	c := l.lock(e)
	s, err := c.create(e, id, length)
	c.unlock()
	return s, err
}

// Fork adds a sequence that shares the blocks of parent (handout, task 3).
func (l *Library) Fork(e *Engine, parent, id int32) (*Sequence, error) {
	if e == nil {
		return nil, ErrNilEngine
	}
	c := l.lock(e)
	s, err := c.fork(e, parent, id)
	c.unlock()
	return s, err
}

// Append writes one record (handout, task 4).
func (l *Library) Append(e *Engine, id, data int32) error {
	if e == nil {
		return ErrNilEngine
	}
	c := l.lock(e)
	err := c.append(e, id, data)
	c.unlock()
	return err
}

// AppendBatch writes data[i] to seqs[i] for all i below n, or does nothing (llm_memory_ext.h).
func (l *Library) AppendBatch(e *Engine, seqs **Sequence, data *int32, n int32) error {
	if e == nil {
		return ErrNilEngine
	}
	if seqs == nil || data == nil || n <= 0 {
		return ErrArgument
	}
	c := l.lock(e)
	err := c.appendBatch(e, unsafe.Slice(seqs, int(n)), unsafe.Slice(data, int(n)))
	c.unlock()
	return err
}

// AppendRun writes n records to s, or nothing (llm_memory_ext.h).
func (l *Library) AppendRun(e *Engine, s *Sequence, data *int32, n int32) error {
	if e == nil {
		return ErrNilEngine
	}
	if s == nil || data == nil || n <= 0 {
		return ErrArgument
	}
	c := l.lock(e)
	err := c.appendRun(e, s, unsafe.Slice(data, int(n)))
	c.unlock()
	return err
}

// Free drops a sequence and its references (handout, task 2).
func (l *Library) Free(e *Engine, id int32) error {
	if e == nil {
		return ErrNilEngine
	}
	c := l.lock(e)
	err := c.free(e, id)
	c.unlock()
	return err
}

// Destroy frees every sequence and the engine (handout, task 5).
func (l *Library) Destroy(e *Engine) error {
	if e == nil {
		return ErrNilEngine
	}
	c := l.lock(e)
	c.destroy(e)
	c.unlock()
	return nil
}
