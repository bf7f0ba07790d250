package matrix

import "errors"

// An Arena shares huge pages out among matrices: one that is smaller than a huge page would have none
// for itself. The zero Arena is ready. It is for one goroutine at a time.
type Arena struct {
	all  []*Memory
	free []byte
}

// arenaBytes is what is mapped at a time. What is not used of it takes no memory.
const arenaBytes = 64 << 20

// line is the size of a cache line, at which each piece begins.
const line = 64

// take returns n zeros, until Close.
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

// Close gives the memory of all matrices back.
func (a *Arena) Close() error {
	var err error
	for _, m := range a.all {
		err = errors.Join(err, m.Close())
	}
	*a = Arena{}
	return err
}
