package sandbox

import "testing"

// LeaveOut makes launchers omit layers of protection during a test, as if the kernel did not support them.
func LeaveOut(t *testing.T, layers string) {
	omitted = layers
	t.Cleanup(func() { omitted = "-" })
}
