package main

import (
	"time"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/serving/engine"
)

// A progress counts the steps of a run. It measures rates only until all requests have begun, because from then on
// fewer and fewer answers are generated at the same time.
type progress struct {
	all, begun    int // requests; the first token of an answer begins a request
	steps         int
	used, logical int // blocks in use over all steps, and entries of block tables

	since, last       time.Time // of what is measured
	measured          int       // steps
	tokens, sequences int       // generated, and computed, over all measured steps
}

func (p *progress) begin(requests int) {
	now := time.Now()
	*p = progress{all: requests, since: now, last: now}
}

func (p *progress) note(u serve.Usage) {
	p.used += u.Used
	p.logical += u.Logical
}

// stepped counts a step. tokens is the number of tokens that the step generated, and sequences the number of
// sequences that it computed. begun is the number of requests that had begun before the step.
func (p *progress) stepped(tokens, sequences, begun int) {
	p.steps++
	if begun >= p.all {
		return
	}
	p.measured++
	p.tokens += tokens
	p.sequences += sequences
	p.last = time.Now()
}

func (p *progress) rate() float64 { return float64(p.tokens) / p.last.Sub(p.since).Seconds() }

type observed struct {
	engine.NoObserver
	progress
	before int // requests that had begun before the step
}

func (o *observed) FirstToken(time.Duration) { o.begun++ }

func (o *observed) Step(r engine.StepReport) {
	o.stepped(r.GenerationTokens, r.Sampled, o.before)
	o.before = o.begun
}
