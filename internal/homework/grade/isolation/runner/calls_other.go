//go:build !amd64

package runner

// sysOpen is the number of no call: other processors have openat only.
const sysOpen = ^uint32(0)

var archCallNames map[uint32]string
