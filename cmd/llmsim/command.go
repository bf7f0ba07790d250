package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

// A checkedWriter keeps the first error, so that a full disk is reported.
type checkedWriter struct {
	to  io.Writer
	err error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = w.to.Write(text)
	return n, w.err
}

// writeJSON writes a value with indents.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(v)
}

// writeFact writes a name and its text, wrapped and indented to a column.
func writeFact(w io.Writer, name, text string, column int) {
	for _, line := range terminal.Wrap(text, column) {
		fmt.Fprintf(w, "%s\t%s\n", name, line)
		name = ""
	}
}

// onlyFlags returns an error if there are arguments. It names the flags that take files.
func onlyFlags(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var files []string
	for _, name := range []string{"trace", "course"} {
		if c.Flags().Lookup(name) != nil {
			files = append(files, "--"+name+" FILE")
		}
	}
	if len(files) == 0 {
		return fmt.Errorf("%s takes flags, and no %q", c.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes flags, and no %q; a file goes with %s", c.CommandPath(), args[0],
		strings.Join(files, " or "))
}
