//go:build !linux

package kvstore

import "math"

const pageSize = 64

// machineMemory is not known.
func machineMemory() uint64 { return math.MaxUint64 }

// mapMemory returns zeroed memory of the heap.
func mapMemory(size int) ([]byte, error) {
	if size <= 0 {
		return nil, nil
	}
	return make([]byte, size), nil
}

func unmapMemory([]byte) error { return nil }
