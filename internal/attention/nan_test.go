package attention

import (
	"encoding/binary"
	"fmt"
	"math"
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
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F32}, heads: 2, lens: []int{300},
						queries: []int{queries},
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

// A query that does not reach a token does not see that its value's scale is NaN or infinite.
func TestAScaleOfInt8IsSeenFromItsTokenOn(t *testing.T) {
	const length, queries, head = 300, 20, 64
	forEachSet(t, func(t *testing.T, runner *Runner) {
		for _, bits := range []uint32{0x7fc00000, 0xff800000} {
			for _, layout := range []Layout{LayoutTile, LayoutVLLM, LayoutFlash} {
				for _, heads := range []int{1, 4} {
					t.Run(fmt.Sprintf("%#x, %v, %d heads", bits, layout, heads), func(t *testing.T) {
						p := newProblem(rand.New(rand.NewPCG(3, 4)), problemSpec{
							shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: head, DType: Int8, Layout: layout},
							heads: heads, lens: []int{length}, queries: []int{queries},
						})
						const poisoned = length - queries/2 // a query's own token
						scales := p.cache.Scales(p.cache.ValueScales, p.batch.blockOf(&p.cache, 0, poisoned), 0)
						scales[poisoned%16] = math.Float32frombits(bits)
						require.NoError(t, runner.Forward(&p.cache, &p.batch))
						for i, v := range p.out {
							sees := length-queries+i/(heads*head) >= poisoned
							require.Equal(t, sees, !isFinite(v), "element %d is %v", i, v)
						}
					})
				}
			}
		}
	})
}
