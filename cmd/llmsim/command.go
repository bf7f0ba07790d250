package main

import "io"

// A checkedWriter remembers the first error, so that no write to a full disk goes
// unnoticed.
type checkedWriter struct {
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	n, err := w.to.Write(text)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}
