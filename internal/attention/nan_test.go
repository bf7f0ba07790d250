package attention

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key with any kind of NaN makes outputs NaN, also with the one of poisoned memory.
func TestEveryNaNOfAKeyShows(t *testing.T) {
	forEachSet(t, func(t *testing.T, runner *Runner) {
		for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xffffffff} {
			for _, queries := range []int{1, 20} {
				t.Run(fmt.Sprintf("%#x, %d queries", bits, queries), func(t *testing.T) {
					p := newProblem(rand.New(rand.NewPCG(3, 4)), problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F32}, heads: 2, lens: []int{300}, queries: []int{queries},
					})
					block := p.batch.blockOf(&p.cache, 0, 37)
					binary.LittleEndian.PutUint32(p.cache.Key[p.cache.KeyOffset(block, 0, 5, 3):], bits)
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					for i, v := range p.out {
						require.True(t, v != v, "element %d is %v", i, v)
					}
				})
			}
		}
	})
}
