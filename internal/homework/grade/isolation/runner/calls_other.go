//go:build !amd64

package runner

// sysOpen is openat everywhere else.
const sysOpen = ^uint32(0)

var archCallNames map[uint32]string
