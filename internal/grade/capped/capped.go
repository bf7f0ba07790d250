// Package capped bounds what is kept of the output of a program that nobody
// trusts.
package capped

import "bytes"

// A Buffer keeps the first Most bytes that are written to it, and takes all.
type Buffer struct {
	bytes.Buffer
	Most int
}

// Write implements io.Writer. It never fails, so the program is not stopped by it.
func (b *Buffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.Most-b.Len())])
	return len(p), nil
}
