//go:build !linux

package parallel

import "errors"

// pin does nothing where threads cannot be bound.
func pin(int) error { return nil }

// leaveProcessor does nothing where threads cannot be bound.
func leaveProcessor() {}

// processor is not known there.
func processor() (int, error) { return 0, errors.ErrUnsupported }
