package attention

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The query tokens of all sequences read the prefix through the table of the first sequence, whose
// entries after its last token can be anything. One query token is alone in a piece of work, which
// prefetches what comes after the prefix.
func TestNoEntryIsReadAfterTheEndOfTheSequenceWhoseTableHasThePrefix(t *testing.T) {
	const group = 4
	const last = rowsOfItem / group // with the one token of the first sequence, one too many for a piece
	forEachSet(t, func(t *testing.T, runner *Runner) {
		p := newProblem(rand.New(rand.NewPCG(41, 1)), problemSpec{
			shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F16}, heads: group,
			lens: []int{1025, 1024 + 512 + last}, queries: []int{1, last}, common: 1024,
		})
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		got := slices.Clone(p.out)
		p.batch.CommonPrefix = 0
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		require.Equal(t, p.out, got)
	})
}
