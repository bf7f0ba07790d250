package main

import (
	"io"
	"runtime/debug"
	"strings"
)

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

// version is the commit that the program was built from, where the build says it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, commit := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return strings.TrimSpace(v + " " + commit)
}
