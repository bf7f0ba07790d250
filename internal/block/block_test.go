package block

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNeedOfDecidesMapCopyOrNothing(t *testing.T) {
	counts := []int32{0, 1, 2, 7, -3}
	for entry, want := range map[int32]Need{
		None: Map, 0: Nothing, 1: Nothing, 2: Copy, 3: Copy, 4: Nothing,
		5: Outside, -2: Outside, 1<<31 - 1: Outside, -1 << 31: Outside,
	} {
		require.Equal(t, want, NeedOf(counts, entry), "entry %d", entry)
	}
	require.Equal(t, Outside, NeedOf(nil, 0))
	require.Equal(t, Map, NeedOf(nil, None))
}

func TestRevokeUndoesAssign(t *testing.T) {
	for _, slot := range []int32{None, 2} {
		counts := []int32{1, 0, 3}
		before := slices.Clone(counts)
		entry := slot
		require.Equal(t, slot, Assign(counts, &entry, 1))
		require.EqualValues(t, 1, entry)
		require.EqualValues(t, 1, counts[1])
		if slot != None {
			require.EqualValues(t, 2, counts[2], "the sharer keeps its reference")
		}
		Revoke(counts, &entry, slot)
		require.Equal(t, slot, entry)
		require.Equal(t, before, counts)
	}
}

func TestReleaseSaysWhetherABlockBecameFree(t *testing.T) {
	counts := []int32{1, 2, 0}
	require.True(t, Release(counts, 0))
	require.False(t, Release(counts, 1))
	require.False(t, Release(counts, 2), "a count below 0 is not free")
	require.False(t, Release(counts, None))
	require.False(t, Release(counts, 3))
	require.Equal(t, []int32{0, 1, -1}, counts)
}

func TestShareIsAllOrNothing(t *testing.T) {
	counts := []int32{1, 2, 0}
	require.True(t, Share(counts, []int32{0, None, 1, 1}))
	require.Equal(t, []int32{2, 4, 0}, counts)
	require.False(t, Share(counts, []int32{0, None, 1, 3, 2}))
	require.False(t, Share(counts, []int32{0, -2}))
	require.Equal(t, []int32{2, 4, 0}, counts)
	Unshare(counts, []int32{0, None, 1, 1})
	require.Equal(t, []int32{1, 2, 0}, counts)
	Unshare(counts, []int32{3, -2})
	require.Equal(t, []int32{1, 2, 0}, counts, "an entry outside the pool is skipped")
}

// Ensure that the assembly finds the same first zero as a plain loop, for slices of every length below 300 and a
// zero at every index. The test runs with each vector width that this processor supports.
func TestTheScansFindTheFirstZero(t *testing.T) {
	loop := func(counts []int32) int {
		if i := slices.Index(counts, 0); i >= 0 {
			return i
		}
		return len(counts)
	}
	for w := portable; w <= width; w++ {
		t.Run(fmt.Sprintf("width %d", w), func(t *testing.T) {
			defer func(saved int) { width = saved }(width)
			width = w
			for n := range 300 {
				counts := make([]int32, n)
				for i := range counts {
					counts[i] = int32(-i - 1)
				}
				require.Equal(t, n, firstZero(counts), "no zero among %d", n)
				for i := range counts {
					counts[i] = 0
					require.Equal(t, i, firstZero(counts), "a zero at %d of %d", i, n)
					counts[i] = int32(uint32(1) << (i % 32)) // every bit counts
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				counts := rapid.SliceOfN(rapid.Int32Range(0, 30), 0, 500).Draw(t, "counts")
				require.Equal(t, loop(counts), firstZero(counts))
			})
		})
	}
}

// Ensure that the scan reads no memory after the slice. The page after the slice is not accessible, so a read there
// crashes the test.
func TestFirstZeroReadsNothingAfterTheLastCount(t *testing.T) {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	defer func() { _ = syscall.Munmap(memory) }()
	require.NoError(t, syscall.Mprotect(memory[page:], syscall.PROT_NONE))
	counts := unsafe.Slice((*int32)(unsafe.Pointer(&memory[0])), page/4)
	for i := range counts {
		counts[i] = 1
	}
	defer func(saved int) { width = saved }(width)
	for widest := width; width > portable; width-- {
		for n := range 300 {
			require.Equal(t, n, firstZero(counts[len(counts)-n:]), "width %d of %d", width, widest)
		}
	}
	for n := range 300 {
		require.Equal(t, n, firstZeroPortable(counts[len(counts)-n:]))
	}
}

// Ensure that FirstFit finds the same blocks as the handout's loop. The loop starts from block 0 each time.
func TestFirstFitEqualsStartingAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Int32Range(-1, 2), 0, 300).Draw(t, "counts")
		anew := slices.Clone(counts)
		fit := FirstFitOver(counts)
		for {
			want := int32(slices.Index(anew, 0))
			got := fit.Next()
			require.Equal(t, want, got)
			if got == None {
				require.Equal(t, None, fit.Next(), "the end stays the end")
				return
			}
			counts[got], anew[got] = 1, 1
		}
	})
}

func TestFillStopsWhereTheBlocksEnd(t *testing.T) {
	fit := FirstFitOver([]int32{0, 1, 0, 0})
	out := make([]int32, 5)
	require.Equal(t, 3, fit.Fill(out))
	require.Equal(t, []int32{0, 2, 3}, out[:3])
	require.Zero(t, fit.Fill(out))
}

func TestConservedFindsEveryWrongCount(t *testing.T) {
	entries := func(ids ...int32) func(func(int32) bool) { return slices.Values(ids) }
	require.NoError(t, Conserved([]int32{2, 0, 1}, 1, entries(0, 2, 0)))
	require.NoError(t, Conserved([]int32{2, 0, 0}, 2, entries(0, 0)))
	for _, tc := range []struct {
		name, wantErr string
		err           error
	}{
		{"a count above its entries", "block 0 has the count 2, but 1 table", Conserved([]int32{2, 0}, 1, entries(0))},
		{"a count below its entries", "block 1 has the count 0, but 1 table", Conserved([]int32{1, 0}, 1, entries(0, 1))},
		{"a block outside the pool", "a table names block 2 of a pool of 2", Conserved([]int32{1, 0}, 1, entries(0, 2))},
		{"too many free blocks", "the free count is 2, but 1 of 2 blocks are free", Conserved([]int32{1, 0}, 2, entries(0))},
		{"a negative number of free blocks", "the free count is -1, but 0 of 0 blocks are free", Conserved(nil, -1, entries())},
	} {
		require.ErrorIs(t, tc.err, ErrNotConserved, tc.name)
		require.ErrorContains(t, tc.err, tc.wantErr, tc.name)
	}
}

func BenchmarkFirstZero(b *testing.B) {
	for _, n := range []int{1024, 8192, 65536, 1 << 20} {
		counts := slices.Repeat([]int32{1}, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				firstZero(counts)
			}
		})
	}
}
