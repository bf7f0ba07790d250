package course

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/block"
	"llmmemory/internal/testkit/level"
)

func TestCheckSaysWhatIsBroken(t *testing.T) {
	for _, tc := range []struct {
		name, wantErr string
		damage        func(e *Engine, s *Sequence)
	}{
		{"a link that is NULL", "a link of the list is NULL", func(_ *Engine, s *Sequence) { s.Node.Next = nil }},
		{"a list that differs backward", "the list forward is not the list backward", func(e *Engine, _ *Sequence) { e.Active.Prev = &e.Active }},
		{"a sequence listed twice", "sequence 1 is listed twice", func(_ *Engine, s *Sequence) { s.ID = 1 }},
		{"no block table", "sequence 0 has no block_table", func(_ *Engine, s *Sequence) { s.BlockTable = nil }},
		{"a negative number of records", "sequence 0 has -1 records", func(_ *Engine, s *Sequence) { s.KVCount = -1 }},
		{"more records than fit", "sequence 0 has 4097 records", func(_ *Engine, s *Sequence) { s.KVCount = maxRecords + 1 }},
		{"a block outside the pool", "sequence 0, block_table[0][3] is 256", func(_ *Engine, s *Sequence) { s.BlockTable[0][3] = 256 }},
		{"a count above its entries", "block 0 has the count 2, but 1 table entries", func(e *Engine, _ *Sequence) { *e.count(0) = 2 }},
		{"an entry that was dropped", "block 0 has the count 1, but 0 table entries", func(_ *Engine, s *Sequence) { s.BlockTable[0][0] = -1 }},
		{"a wrong number of free blocks", "the free count is 253, but 254 of 2", func(e *Engine, _ *Sequence) { e.Free-- }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			e, seqs := b.engine(2)
			require.NoError(t, e.Check())
			tc.damage(e, seqs[0])
			err := e.Check()
			require.ErrorIs(t, err, ErrInconsistent)
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
	b := newBench(t)
	e, seqs := b.engine(2)
	for _, records := range []int32{0, maxRecords} { // whatever is mapped
		seqs[0].KVCount = records
		require.NoError(t, e.Check())
	}
	*e.count(7) = 1
	require.ErrorIs(t, e.Check(), block.ErrNotConserved)
}

func TestCheckEndsOnALoop(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(3)
	seqs[2].Node.Next = &seqs[1].Node
	seqs[1].Node.Prev = &seqs[2].Node
	require.ErrorIs(t, e.Check(), ErrInconsistent)
}

// Ensure that the address of a block is correct even if the block's offset in the pool does not fit in an int32. Block
// 2^25 is the first block with such an offset, 2 GiB.
func TestBlockAddressesAre64Bits(t *testing.T) {
	level.SkipQuick(t)
	const blocks = 1<<25 + 2
	pool := mapPages(blocks * BlockSize) // untouched pages cost nothing
	require.NotNil(t, pool)
	defer unmap(pool, blocks*BlockSize)
	arena := &bigArena{}
	l := &Library{Memory: arena}
	e, err := l.Init(pool, blocks*BlockSize)
	require.NoError(t, err)
	defer unmap(unsafe.Pointer(e.RefCount), blocks*4)
	require.EqualValues(t, blocks, e.Total)
	counts := e.counts()
	for i := range counts[:blocks-1] {
		counts[i] = 1
	}
	e.Free = 1
	s, err := l.Create(e, 1, 16)
	require.NoError(t, err)
	require.EqualValues(t, blocks-1, s.BlockTable[0][0])
	s.KVCount = 5
	require.NoError(t, l.Append(e, 1, 77))
	last := (*[KVPerBlock]int32)(unsafe.Add(pool, uintptr(blocks-1)*BlockSize))
	require.EqualValues(t, 77, last[5])
}

// bigArena gives each chunk its own pages and never reuses memory.
type bigArena struct{}

func (bigArena) Get(chunks []Chunk) bool {
	for i := range chunks {
		chunks[i].At = mapPages(chunks[i].Size)
	}
	return true
}

func (bigArena) Put(_, _ unsafe.Pointer) {}

func TestInitRefusesWhatIsNoPool(t *testing.T) {
	b := newBench(t)
	pool := unsafe.Pointer(&b.pool[0])
	for _, size := range []uintptr{0, 1, BlockSize - 1, BlockSize << 31, ^uintptr(0)} {
		_, err := b.library.Init(pool, size)
		require.ErrorIs(t, err, ErrPool, "%d", size)
	}
	_, err := b.library.Init(nil, 640)
	require.ErrorIs(t, err, ErrPool)
	require.Zero(t, b.arena.calls, "nothing was asked of memory")
	for fail := 1; fail <= 3; fail++ {
		size := uintptr(640)
		if b.arena.fail = fail; fail == 3 { // the largest pool is one
			b.arena.fail, size = 1, BlockSize*math.MaxInt32
		}
		_, err = b.library.Init(pool, size)
		require.ErrorIs(t, err, ErrNoMemory)
		require.Empty(t, b.arena.live)
	}
}

// Ensure that the journal unmaps its memory after a large batch, also if the batch is refused.
func TestALargeBatchLeavesNoMemoryBehind(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(2)
	const n = 2 * keptBytes / bytesPerStep
	many := make([]*Sequence, n)
	data := make([]int32, n)
	j := &b.library.cores[coreOf(e)].batch
	require.ErrorIs(t, b.library.AppendBatch(e, &many[0], &data[0], int32(n)), ErrArgument)
	require.Zero(t, j.size)
	require.NoError(t, b.library.AppendRun(e, seqs[0], &data[0], 100))
	require.EqualValues(t, keptBytes, j.size)
}

func TestBadBatchArgumentsAreRefused(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(2)
	data := []int32{1, 2}
	l := b.library
	require.ErrorIs(t, l.AppendBatch(nil, &seqs[0], &data[0], 2), ErrNilEngine)
	require.ErrorIs(t, l.AppendBatch(e, nil, &data[0], 2), ErrArgument)
	require.ErrorIs(t, l.AppendBatch(e, &seqs[0], nil, 2), ErrArgument)
	require.ErrorIs(t, l.AppendBatch(e, &seqs[0], &data[0], 0), ErrArgument)
	require.ErrorIs(t, l.AppendBatch(e, &seqs[0], &data[0], -1), ErrArgument)
	require.ErrorIs(t, l.AppendRun(nil, seqs[0], &data[0], 2), ErrNilEngine)
	require.ErrorIs(t, l.AppendRun(e, nil, &data[0], 2), ErrArgument)
	require.ErrorIs(t, l.AppendRun(e, seqs[0], nil, 2), ErrArgument)
	require.ErrorIs(t, l.AppendRun(e, seqs[0], &data[0], -1<<31), ErrArgument)
	require.ErrorIs(t, l.AppendRun(e, seqs[0], &data[0], 0), ErrArgument)
	before := seqs[0].KVCount
	require.ErrorIs(t, l.AppendBatch(e, &[]*Sequence{seqs[0], nil}[0], &data[0], 2), ErrArgument)
	require.Equal(t, before, seqs[0].KVCount, "the first append was taken back")
	require.NoError(t, e.Check())
}

// Ensure that a tidy library has no copy of a pointer of the host after a call. The list is long enough for the cache and
// the order. LeakSanitizer reads the library's static data, but not the pages that the library maps.
func TestATidyLibraryKeepsNoPointerOfTheHost(t *testing.T) {
	b := newBench(t)
	b.library.Tidy = true
	e, seqs := b.engine(40)
	_, err := b.library.Fork(e, 30, 100)
	require.NoError(t, err)
	data := []int32{1, 2}
	require.NoError(t, b.library.AppendBatch(e, &seqs[30], &data[0], 2))
	require.NoError(t, b.library.AppendRun(e, seqs[35], &data[0], 2))
	require.NoError(t, b.library.Free(e, 100))
	b.misses(e, 100)
	names := map[uint64]string{address(e): "the engine", address(&e.Active): "the dummy head", address(e.RefCount): "ref_count"}
	for _, s := range seqs {
		names[address(s)], names[address(&s.Node)] = "a sequence", "a node"
		names[address(s.BlockTable)], names[address(s.BlockTable[0])] = "an L1 table", "an L2 table"
	}
	for i, word := range unsafe.Slice((*uint64)(unsafe.Pointer(b.library)), unsafe.Sizeof(*b.library)/8) {
		require.Empty(t, names[word], "word %d of the library", i)
	}
}
