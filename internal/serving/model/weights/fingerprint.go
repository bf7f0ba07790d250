package weights

import (
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"
)

// Fingerprint returns a hash of the names, types, shapes and contents of the tensors, and of the settings of their
// quantization. It does not depend on how the tensors are distributed among files. Fingerprint reads all tensors, at
// most four at a time.
func (t *Tensors) Fingerprint() string {
	names := t.Names()
	for _, name := range sortedKeys(t.others) {
		if t.byName[name] == nil {
			names = append(names, name)
		}
	}
	sums := make([]xxh3.Uint128, len(names))
	var wait sync.WaitGroup
	running := make(chan struct{}, 4)
	for i, name := range names {
		running <- struct{}{}
		wait.Go(func() {
			defer func() { <-running }()
			data := t.others[name].data
			if one := t.byName[name]; one != nil {
				data = one.data
			}
			sums[i] = xxh3.Hash128(data)
		})
	}
	wait.Wait()
	h := xxh3.New()
	if t.scheme != nil {
		fmt.Fprintf(h, "%+v\n", *t.scheme)
	}
	for i, name := range names {
		sum := sums[i].Bytes()
		if one := t.byName[name]; one != nil {
			fmt.Fprintf(h, "%q %v %d %d %x\n", name, one.DType, one.Rows, one.Cols, sum)
		} else {
			fmt.Fprintf(h, "%q %s %v %x\n", name, t.others[name].DType, t.others[name].Shape, sum)
		}
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:])
}
