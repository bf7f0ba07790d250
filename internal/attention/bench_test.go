package attention

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkQuick(b *testing.B) {
	for _, dtype := range []DType{F16, BF16, F32, E4M3, E5M2, Int8} {
		for _, n := range []int{1024, 16384} {
			r := rand.New(rand.NewPCG(1, 1))
			p := newProblem(r, problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 8, HeadSize: 128, DType: dtype}, heads: 32, lens: []int{n},
			})
			runner := newRunner(b, 1)
			b.Run(fmt.Sprintf("%v %d", dtype, n), func(b *testing.B) {
				b.SetBytes(int64(n * 2 * 8 * 128 * dtype.Size()))
				for b.Loop() {
					_ = runner.Forward(&p.cache, &p.batch)
				}
			})
		}
	}
}
