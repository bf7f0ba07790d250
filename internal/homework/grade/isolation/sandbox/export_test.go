package sandbox

import "testing"

// LeaveOut makes launchers leave layers out, as if the kernel did not have them.
func LeaveOut(t *testing.T, layers string) {
	without = layers
	t.Cleanup(func() { without = "-" })
}
