package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"llmmemory/internal/serving/engine"
)

// stepTimes adds up the times of steps. It observes an engine.
type stepTimes struct {
	engine.NoObserver
	keep bool

	mu           sync.Mutex
	model, other time.Duration
	each         []engine.StepReport // with keep
}

// Step implements engine.Observer.
func (s *stepTimes) Step(r engine.StepReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model += r.Model
	s.other += r.Elapsed - r.Model
	if s.keep {
		s.each = append(s.each, r)
	}
}

// overhead returns the time for scheduling, sampling and delivering, in percent of the model's time.
func (s *stepTimes) overhead() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 100 * s.other.Seconds() / max(s.model.Seconds(), 1e-9)
}

// csv returns a line for each step, with four columns:
//
//	batch    the number of sequences that sample a token
//	context  the tokens to which all decodes attend, divided by batch
//	prompt   the number of computed tokens of prompts, plus the number of computed drafts
//	seconds  the time of the step
//
// After a preemption, the tokens of the answer so far are computed again, and also count as prompt.
func (s *stepTimes) csv() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString("batch,context,prompt,seconds\n")
	for _, r := range s.each {
		context := 0.0
		if r.Sampled > 0 {
			context = float64(r.Context) / float64(r.Sampled)
		}
		fmt.Fprintf(&b, "%d,%.3f,%d,%.9f\n", r.Sampled, context, r.Tokens-r.Decodes, r.Elapsed.Seconds())
	}
	return b.String()
}

func (b *benchOptions) write(r result, steps *stepTimes, timings []timing, begin time.Time) error {
	if b.steps != "" {
		if err := os.WriteFile(b.steps, []byte(steps.csv()), 0o644); err != nil {
			return err
		}
	}
	if b.arrivals != "" {
		var text strings.Builder
		text.WriteString("arrival,prompt,output\n")
		slices.SortFunc(timings, func(a, b timing) int { return a.start.Compare(b.start) })
		for _, t := range timings {
			fmt.Fprintf(&text, "%.6f,%d,%d\n", t.start.Sub(begin).Seconds(), b.prefixLen+b.inputLen, len(t.tokens))
		}
		if err := os.WriteFile(b.arrivals, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	if b.output == "" {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.output, append(data, '\n'), 0o644)
}
