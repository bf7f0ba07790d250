package course

// Deepen ensures that the current goroutine has at least 64 KiB of stack. It only has a frame of this size, and does
// nothing else. A call from C begins on a stack of 4 KiB, which grows when Go code needs more. A signal handler that
// the host installed without SA_ONSTACK runs on this stack, too, and cannot make it grow.
func Deepen()
