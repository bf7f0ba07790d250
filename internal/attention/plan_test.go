package attention

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One token attends to a context of few partitions, of which the last may be short. No piece of
// work is so large that other cores wait for the one that does it.
func TestFewPartitionsAreSharedOutByHeads(t *testing.T) {
	c := &Cache{Shape: Shape{BlockSize: 16, NumKVHeads: 12, HeadSize: 64, DType: F16}}
	for _, tokens := range []int{513, 700, 1100, 1600} {
		for _, workers := range []int{2, 4} {
			b := &Batch{NumHeads: 12, QueryStart: []int32{0, 1}, SeqLens: []int32{int32(tokens)}}
			var p plan
			p.make(c, b, workers)
			all := 0
			for _, it := range p.items {
				read := it.heads * (min(tokens, it.part1*PartitionSize) - it.part0*PartitionSize)
				require.LessOrEqual(t, read, 12*tokens/(2*workers), "%d tokens, %d workers", tokens, workers)
				all += read
			}
			require.Equal(t, 12*tokens, all, "%d tokens, %d workers", tokens, workers)
		}
	}
}
