//go:build !linux

package kvstore

const pageSize = 64

// mapMemory returns zeroed memory of the heap.
func mapMemory(size int) ([]byte, error) {
	if size <= 0 {
		return nil, nil
	}
	return make([]byte, size), nil
}

func unmapMemory([]byte) error { return nil }
