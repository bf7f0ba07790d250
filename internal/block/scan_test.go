package block

import "testing"

func BenchmarkFirstZero(b *testing.B) {
	for _, n := range []int{1024, 4096, 8192, 65536} {
		counts := make([]int32, n)
		for i := range counts {
			counts[i] = 1
		}
		b.Run(string(rune('0'+n/1024)), func(b *testing.B) {
			for b.Loop() {
				firstZero(counts)
			}
		})
	}
}
