package course

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a fork keeps no references to the blocks of the parent's first table if it fails at the second table.
func TestAForkThatIsRefusedTakesNoReference(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(1)
	s, err := b.library.Create(e, 7, 300)
	require.NoError(t, err)
	s.BlockTable[1][2] = 256
	before := slices.Clone(e.counts())
	_, err = b.library.Fork(e, 7, 8)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, before, e.counts())
	require.True(t, b.reaches(e, 0, seqs[0]))
}

type refusable func(l *Library, e *Engine, s *Sequence) error

func creates(id, length int32) refusable {
	return func(l *Library, e *Engine, _ *Sequence) error { _, err := l.Create(e, id, length); return err }
}

func forks(parent, id int32) refusable {
	return func(l *Library, e *Engine, _ *Sequence) error { _, err := l.Fork(e, parent, id); return err }
}

func appends(id int32) refusable {
	return func(l *Library, e *Engine, _ *Sequence) error { return l.Append(e, id, 1) }
}

func frees(id int32) refusable {
	return func(l *Library, e *Engine, _ *Sequence) error { return l.Free(e, id) }
}

func runs(n int) refusable {
	return func(l *Library, e *Engine, s *Sequence) error {
		return l.AppendRun(e, s, &make([]int32, n)[0], int32(n))
	}
}

// refusals lists calls that must be refused, most of them for several reasons at once. The expected error is for the
// reason that the handout checks first.
var refusals = []struct {
	name    string
	prepare func(e *Engine, s *Sequence) // s has the id 0, and 1 record
	call    refusable
	wantErr error // ErrNilEngine: the engine is nil
}{
	{"create without an engine", nil, creates(5, 1), ErrNilEngine},
	{"create of length 0 with an id that exists", nil, creates(0, 0), ErrLength},
	{"create of a negative length", nil, creates(5, -1), ErrLength},
	{"create of an id that exists, too long", nil, creates(0, 9999), ErrExists},
	{"create of 257 blocks when none is free", func(e *Engine, _ *Sequence) { e.Free = 0 }, creates(5, 4097), ErrCapacity},
	{"create of the greatest length", nil, creates(5, math.MaxInt32), ErrCapacity},
	{"create of more blocks than are free", nil, creates(5, 4096), ErrNoBlocks},
	{"create with a free count that is not true", func(e *Engine, _ *Sequence) { fillCounts(e) }, creates(5, 1), ErrNoBlocks},
	{"create at a NULL tail", func(e *Engine, _ *Sequence) { e.Active.Prev = nil }, creates(5, 1), ErrCorrupt},
	{"fork without an engine", nil, forks(0, 5), ErrNilEngine},
	{"fork of no parent to an id that exists", nil, forks(5, 0), ErrNotFound},
	{"fork to an id that exists", nil, forks(0, 1), ErrExists},
	{"fork without a block table", func(_ *Engine, s *Sequence) { s.BlockTable = nil }, forks(0, 5), ErrCorrupt},
	{"fork of a block outside the pool", func(_ *Engine, s *Sequence) { s.BlockTable[0][3] = 256 }, forks(0, 5), ErrCorrupt},
	{"append without an engine", nil, appends(0), ErrNilEngine},
	{"append to no sequence", nil, appends(5), ErrNotFound},
	{"append to a full sequence", func(_ *Engine, s *Sequence) { s.KVCount = 4096 }, appends(0), ErrCapacity},
	{"append after a negative count", func(_ *Engine, s *Sequence) { s.KVCount = -1 }, appends(0), ErrCorrupt},
	{"append without a pool", func(e *Engine, _ *Sequence) { e.Pool = nil }, appends(0), ErrCorrupt},
	{"append to a block outside the pool when none is free", func(e *Engine, s *Sequence) { s.BlockTable[0][0], e.Free = -2, 0 }, appends(0), ErrCorrupt},
	{"append of a new block when none is free", func(e *Engine, s *Sequence) { s.KVCount, e.Free = 16, 0 }, appends(0), ErrNoBlocks},
	{"free without an engine", nil, frees(0), ErrNilEngine},
	{"free of no sequence", nil, frees(5), ErrNotFound},
	{"destroy without an engine", nil, func(l *Library, e *Engine, _ *Sequence) error { return l.Destroy(e) }, ErrNilEngine},
	{"a run to a full sequence", func(_ *Engine, s *Sequence) { s.KVCount = 4096 }, runs(1), ErrCapacity},
	{"a run that is too long by one", func(_ *Engine, s *Sequence) { s.KVCount = 4095 }, runs(2), ErrCapacity},
	{"a run to a block outside the pool", func(_ *Engine, s *Sequence) { s.BlockTable[0][0] = 256 }, runs(1), ErrCorrupt},
	{"a batch when no block is free", func(e *Engine, s *Sequence) { s.KVCount, e.Free = 16, 0 },
		func(l *Library, e *Engine, s *Sequence) error { return l.AppendBatch(e, &s, &[]int32{7}[0], 1) }, ErrNoBlocks},
}

func TestARefusalSaysWhy(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			e, seqs := b.engine(2)
			seqs[0].KVCount = 1
			if c.prepare != nil {
				c.prepare(e, seqs[0])
			}
			if c.wantErr == ErrNilEngine {
				e = nil
			}
			calls := b.arena.calls
			require.ErrorIs(t, c.call(b.library, e, seqs[0]), c.wantErr)
			require.Equal(t, calls, b.arena.calls, "nothing was asked of memory")
		})
	}
}

func fillCounts(e *Engine) {
	for i := range e.counts() {
		*e.count(int32(i)) = 1
	}
}

func TestABatchWithoutPagesIsRefused(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(2)
	pagesFail = true
	defer func() { pagesFail = false }()
	data := []int32{1, 2}
	require.ErrorIs(t, b.library.AppendBatch(e, &seqs[0], &data[0], 2), ErrNoMemory)
	require.ErrorIs(t, b.library.AppendRun(e, seqs[0], &data[0], 2), ErrNoMemory)
	require.NoError(t, e.Check())
}

func TestASequenceWithANullLinkIsNotFreed(t *testing.T) {
	for _, back := range []bool{false, true} {
		b := newBench(t)
		e, seqs := b.engine(2)
		link := &seqs[1].Node.Next
		if back {
			link = &seqs[1].Node.Prev
		}
		was := *link
		*link = nil
		require.ErrorIs(t, b.library.Free(e, seqs[1].ID), ErrCorrupt)
		*link = was
		require.NoError(t, e.Check())
	}
}
