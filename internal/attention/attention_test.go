package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/parallel"
)

func newRunner(t testing.TB, workers int) *Runner {
	pool, err := parallel.New(workers)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return NewRunner(pool)
}

// requireNear compares every output with the reference: at most bound times the
// sum of |p·v| apart.
func requireNear(t *testing.T, p *problem, bound float64) {
	t.Helper()
	b := &p.batch
	worst := 0.0
	for seq := range b.seqs() {
		first, n, _ := b.queries(seq)
		for query := range n {
			for head := range b.NumHeads {
				want, size := p.reference(seq, query, head)
				got := p.out[((first+query)*b.NumHeads+head)*p.cache.HeadSize:]
				for i := range want {
					if math.IsNaN(want[i]) {
						require.True(t, math.IsNaN(float64(got[i])), "sequence %d, query %d, head %d, element %d is %v, not NaN", seq, query, head, i, got[i])
						continue
					}
					d := math.Abs(float64(got[i]) - want[i])
					require.False(t, math.IsNaN(d), "sequence %d, query %d, head %d, element %d is NaN, not %v", seq, query, head, i, want[i])
					if d > 0 {
						worst = max(worst, d/size[i])
					}
					require.LessOrEqual(t, d, bound*size[i], "sequence %d, query %d, head %d, element %d: %v, reference %v", seq, query, head, i, got[i], want[i])
				}
			}
		}
	}
	t.Logf("at most %.2g of the sum of |p·v|", worst)
}

const f32Bound = 2e-6

func TestDecodingEqualsTheReference(t *testing.T) {
	for _, dtype := range []DType{F32, F16, BF16, E4M3, E5M2, Int8} {
		for _, layout := range []Layout{LayoutTile, LayoutVLLM, LayoutFlash} {
			for _, size := range []int{32, 64, 80, 96, 128, 192, 256} {
				t.Run(fmt.Sprintf("%v %v %d", dtype, layout, size), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(size)))
					p := newProblem(r, problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: size, DType: dtype, Layout: layout},
						heads: 6, lens: []int{1, 16, 530},
					})
					require.NoError(t, newRunner(t, 1).Forward(&p.cache, &p.batch))
					requireNear(t, p, f32Bound)
				})
			}
		}
	}
}
