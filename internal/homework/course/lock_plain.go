//go:build !(linux && amd64) || race

package course

import "sync"

// A lock is a mutex where lock_biased.go does not apply.
type lock = sync.Mutex
