package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"llmmemory/internal/replay"
)

// replayOld plays a recording in the format that V0's, the paper's and Orca's
// have.
func replayOld(out io.Writer, file string) error {
	t, err := replay.LoadOld(file)
	if err != nil {
		return err
	}
	compared, err := replay.VerifyOld(t)
	if err != nil {
		var d *replay.Difference
		if errors.As(err, &d) {
			return err
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	rest := ""
	if lines := len(t.Ops) + 1; compared < lines {
		rest = fmt.Sprintf("; %d after the failure, which leaves vLLM in a state of its own", lines-compared)
	}
	name, _, _ := strings.Cut(filepath.Base(file), ".jsonl")
	fmt.Fprintf(out, "%-32s equal  %6d lines%s\n", name, compared, rest)
	return nil
}
