package course

// Deepen makes sure that the goroutine it runs on has 64 KiB of stack left: it
// has a frame of that size and does nothing. A call from C runs on a stack of
// 4 KiB that grows as Go needs it; but a signal handler that the host installed
// without SA_ONSTACK runs there too when it interrupts the call, and cannot make
// it grow.
func Deepen()
