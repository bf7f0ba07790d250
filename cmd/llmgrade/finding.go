package main

import (
	"fmt"
	"os"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/reproduce"
)

// writeFinding writes the first finding that has a trace to the files of --trace and --main.
func (o *options) writeFinding(r *grade.Report) error {
	for _, f := range r.Findings {
		if len(f.Ops) == 0 {
			continue
		}
		for file, text := range map[string]string{o.trace: f.Trace(), o.main: reproduce.Program(f.Name, f.Ops, f.Difference)} {
			if file == "" {
				continue
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s shows no difference in a trace: there is nothing to write", r.File)
}
