//go:build !linux

package parallel

// pin does nothing where threads cannot be bound.
func pin(int) error { return nil }

// leaveProcessor does nothing where threads cannot be bound.
func leaveProcessor() {}
