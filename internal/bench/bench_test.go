package bench

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkTable(b *testing.B) {
	for _, f := range figures() {
		b.Run(f.work, func(b *testing.B) { measureIn(b, f.setup()) })
	}
}

func BenchmarkPoolSize(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { measureIn(b, churn(n)) })
	}
}

func BenchmarkRunning(b *testing.B) {
	for _, n := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { measureIn(b, step(n)) })
	}
}

func measureIn(b *testing.B, r run) {
	b.ReportAllocs()
	b.ResetTimer()
	r(b, b.N)
}

// Ensure that a decode step allocates nothing, and that a pool gives the
// collector nothing to scan: these are no times, so they can be tests.
func TestASteadyStepAllocatesNothing(t *testing.T) {
	for _, ahead := range []int{0, 1} {
		d := newDecoder(64, ahead)
		d.refill()
		require.Zero(t, testing.AllocsPerRun(500, d.one))
	}
}

func TestABlockTakesAtMost96Bytes(t *testing.T) {
	bytes, scanned := perBlock(100_000)
	require.LessOrEqual(t, bytes, 96.0)
	require.Less(t, scanned, 1.0)
	require.Error(t, Print(io.Discard, 0))
}
