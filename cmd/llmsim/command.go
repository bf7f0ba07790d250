package main

import "io"

// A checkedWriter remembers the first error, so that no write to a full disk goes
// unnoticed.
type checkedWriter struct {
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	if w.err != nil { // said once: the rest would fail for the same reason
		return 0, w.err
	}
	var n int
	n, w.err = w.to.Write(text)
	return n, w.err
}
