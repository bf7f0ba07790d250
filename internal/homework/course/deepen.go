package course

// Deepen ensures that the current goroutine has 64 KiB of stack left: it has a frame
// of that size and does nothing. A call from C begins on a stack of 4 KiB, which Go
// code grows as needed. But a signal handler that the host installed without
// SA_ONSTACK runs on this stack if it interrupts the call, and cannot grow it.
func Deepen()
