//go:build !amd64

package block

// portable is the only width on processors without scans in assembly.
const portable = 0

var width = portable
