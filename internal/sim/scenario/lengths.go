package scenario

import (
	"cmp"
	"fmt"

	"llmmemory/internal/sim/workload"
)

// What vLLM's "bench serve --dataset-name random" has where only one of the lengths is given.
const (
	DefaultInputLen  = 1024
	DefaultOutputLen = 128
)

// random reports whether the scenario says how long its requests are.
func (s *Scenario) random() bool { return s.InputLen != 0 || s.OutputLen != 0 || s.RangeRatio != 0 }

// Lengths returns the lengths of the requests of a scenario without a trace.
func (s *Scenario) Lengths() (workload.Lengths, workload.Info, error) {
	if !s.random() {
		return workload.Named(s.Workload)
	}
	prompt, output := cmp.Or(s.InputLen, DefaultInputLen), cmp.Or(s.OutputLen, DefaultOutputLen)
	lengths, err := workload.Random(prompt, output, s.RangeRatio)
	info := workload.Info{Description: fmt.Sprintf("prompts of %d tokens, answers of %d", prompt, output)}
	if s.RangeRatio > 0 {
		info.Description += fmt.Sprintf(", each up to %.3g %% shorter or longer", 100*s.RangeRatio)
	}
	return lengths, info, err
}
