package matrix

import "errors"

// An Arena allocates matrices in shared huge pages, of which a matrix smaller than a huge page would get none. The zero
// Arena is ready for use. One goroutine may use it at a time.
type Arena struct {
	all  []*Memory
	free []byte
}

// arenaBytes is the number of bytes mapped at a time. Unused pages take no memory.
const arenaBytes = 64 << 20

// line is the size of a cache line. Each piece begins at a multiple of it.
const line = 64

// take returns n zeroed bytes, valid until Close.
func (a *Arena) take(n int) ([]byte, error) {
	if n > len(a.free) {
		memory, err := Allocate(max(n, arenaBytes))
		if err != nil {
			return nil, err
		}
		a.all = append(a.all, memory)
		a.free = memory.Bytes()
	}
	piece := a.free[:n:n]
	a.free = a.free[min(len(a.free), (n+line-1)/line*line):]
	return piece, nil
}

// Close releases the memory of all matrices.
func (a *Arena) Close() error {
	var err error
	for _, m := range a.all {
		err = errors.Join(err, m.Close())
	}
	*a = Arena{}
	return err
}
