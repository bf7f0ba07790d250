package weights

import (
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
)

// Fingerprint is equal for tensors with the same names, types, shapes and contents, in whatever files they
// are. It reads all of them, on several goroutines.
func (t *Tensors) Fingerprint() string {
	names := t.Names()
	sums := make([]xxh3.Uint128, len(names))
	var wait sync.WaitGroup
	turns := make(chan struct{}, 4)
	for i, name := range names {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			sums[i] = xxh3.Hash128(t.byName[name].data)
		})
	}
	wait.Wait()
	h := xxh3.New()
	for i, name := range names {
		tensor, sum := t.byName[name], sums[i].Bytes()
		fmt.Fprintf(h, "%q %v %d %d %x\n", name, tensor.DType, tensor.Rows, tensor.Cols, sum)
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}
