package course

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Ensure that a look-up of a moved sequence does not read its former neighbours in the list. They may have been freed.
func TestOnlyPresentNeighboursAreRead(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	b.byHand(e, seqs[26])
	require.True(t, b.reaches(e, 27, seqs[27]))

	unlink(&seqs[30].Node)
	linkTail(&e.Active, &seqs[30].Node)
	b.byHand(e, seqs[29])
	require.True(t, b.reaches(e, 30, seqs[30]))

	for _, s := range seqs[32:34] { // with its predecessor
		unlink(&s.Node)
		linkTail(&e.Active, &s.Node)
	}
	b.byHand(e, seqs[34])
	require.True(t, b.reaches(e, 33, seqs[33]))
}

// Ensure that a look-up in a list of at most plainNodes sequences also removes the entry of a sequence that was unlinked
// by hand. Then this sequence may be freed by hand, and the list may become long again.
func TestALookUpInAShortListRemovesTheEntry(t *testing.T) {
	for name, look := range map[string]func(b *bench, e *Engine){
		"append": func(b *bench, e *Engine) { b.misses(e, 30) },
		"free":   func(b *bench, e *Engine) { require.ErrorIs(b, b.library.Free(e, 30), ErrNotFound) },
		"create": func(b *bench, e *Engine) {
			s, err := b.library.Create(e, 30, 1)
			require.NoError(b, err)
			require.NoError(b, b.library.Free(e, s.ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e, seqs := b.engine(40)
			unlink(&seqs[30].Node)
			for id := range int32(29) { // the neighbours stay
				require.NoError(t, b.library.Free(e, id))
			}
			look(b, e)
			b.arena.drop(unsafe.Pointer(seqs[30]))
			for id := range int32(30) {
				_, err := b.library.Create(e, 2000+id, 1)
				require.NoError(t, err)
			}
			b.misses(e, 30)
			require.NoError(t, b.library.check())
		})
	}
}

// Ensure that an engine does not read a sequence that the test has moved by hand to another engine and that was freed
// there. If the engine read the freed sequence, the arena would panic.
func TestASequenceFreedInAnotherEngineIsNotFollowed(t *testing.T) {
	for name, frees := range map[string]func(b *bench, f *Engine, moved *Sequence) error{
		"at once": func(b *bench, f *Engine, _ *Sequence) error { return b.library.Free(f, 30) },
		"after it was found there": func(b *bench, f *Engine, moved *Sequence) error {
			require.True(b, b.reaches(f, 30, moved))
			return b.library.Free(f, 30)
		},
		"with the engine": func(b *bench, f *Engine, _ *Sequence) error { return b.library.Destroy(f) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			e, seqs := b.engine(40)
			f := b.otherCore(e)
			for id := range int32(30) {
				_, err := b.library.Create(f, 2000+id, 1)
				require.NoError(t, err)
			}
			unlink(&seqs[30].Node)
			linkTail(&f.Active, &seqs[30].Node)
			require.NoError(t, frees(b, f, seqs[30]))
			b.misses(e, 30)
			require.True(t, b.reaches(e, 31, seqs[31]))
			require.NoError(t, b.library.check())
		})
	}
}

// Ensure that an engine does not read a sequence after it was moved to another engine and freed there. In this test no
// other sequence has an entry that refers to the freed sequence as a neighbour. The first engine's core has an entry
// for the freed sequence itself. The second engine, which belongs to another core, finds this entry only through the
// index.
func TestAnEntryOfAnotherCoreIsGivenUp(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	f := b.otherCore(e)
	b.fill(f, 30)
	unlink(&seqs[30].Node)
	require.True(t, b.reaches(e, 29, seqs[29]))
	require.True(t, b.reaches(e, 31, seqs[31]))
	linkTail(&f.Active, &seqs[30].Node)
	require.True(t, b.reaches(f, 30, seqs[30]))
	require.NoError(t, b.library.Free(f, 30))
	b.misses(e, 30)
}

func TestAFreedNeighbourIsNotRead(t *testing.T) {
	b := newBench(t)
	e, seqs := b.engine(40)
	unlink(&seqs[31].Node)
	require.NoError(t, b.library.Free(e, 30))
	b.misses(e, 31)
	require.True(t, b.reaches(e, 32, seqs[32]))
}
