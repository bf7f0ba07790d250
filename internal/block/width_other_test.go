//go:build !amd64

package block

// One scan serves processors without wide ones in assembly.
const portable = 0

var width = portable
