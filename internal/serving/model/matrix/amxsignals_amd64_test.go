//go:build amd64 && !purego

package matrix

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/amx"
)

// Ensure that products with the processor's tiles are right while the process gets signals and collects garbage, and
// while more goroutines multiply than there are processors. Each signal interrupts a thread, and its handler must not
// change the tiles.
func TestTilesSurviveSignalsAndCollections(t *testing.T) {
	has := amx.Usable()
	if !has.BF16 {
		t.Skip("no tiles: this processor or Linux has none, or " + amx.Environment + " forbids them")
	}
	had := usableTiles
	t.Cleanup(func() { usableTiles = had })
	usableTiles = func() amx.Features { return amx.Features{BF16: true} }
	const rows, products, workers = 40, 30, 4
	s := shape{W16A16, 70, 200, 0}
	m := s.packed(t)
	x := activations(rows, s.inputs)
	want := product(m, x, rows)
	var multiplying, disturbing sync.WaitGroup
	var done atomic.Bool
	disturbing.Go(func() {
		for !done.Load() {
			require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGURG))
			runtime.GC()
		}
	})
	results := make([][]float32, workers*products)
	for w := range workers {
		multiplying.Go(func() {
			for i := range products {
				results[w*products+i] = product(m, x, rows)
			}
		})
	}
	multiplying.Wait()
	done.Store(true)
	disturbing.Wait()
	for _, have := range results {
		require.Equal(t, want, have)
	}
}
