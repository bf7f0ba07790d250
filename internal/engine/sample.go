package engine

import (
	"llmmemory/internal/engine/sampling"
	"llmmemory/internal/parallel"
)

// A sampleJob does draws of a step on the pool.
type sampleJob struct {
	pool     *parallel.Pool
	samplers []sampling.Sampler
	rows     []row
	draws    []draw
	first    int // of the step's logits that are in output
	output   output
	vocab    int
}

func (j *sampleJob) init(pool *parallel.Pool) {
	j.samplers = make([]sampling.Sampler, pool.Size())
	j.pool = pool
}

// sample takes from the logits that were computed last. It chooses the next token of every row that is
// through its prompt, and of one that has just come through, one for each answer.
func (e *Engine) sample(s *step, o output) {
	j := &e.sampling
	j.rows, j.output, j.vocab = s.rows, o, e.config.Model.VocabSize
	j.draws, j.first = s.draws[s.first:s.last], s.message.from
	j.pool.Run(len(j.draws), j)
}

// Do does a draw; see parallel.Task.
func (j *sampleJob) Do(worker, i int) {
	d, s := j.draws[i], &j.samplers[worker]
	r := &j.rows[d.row]
	switch {
	case d.place > 0:
		q := r.q
		t := Token{ID: q.tokens[d.place]}
		t.Logprob, t.Top = s.TopLogprobs(j.logits(d.from), t.ID, max(q.params.Logprobs, 0))
		q.stream.prompt[d.place] = t
	case r.q.waiting > 0:
		for _, a := range r.q.stream.answers {
			r.tokens = append(r.tokens, j.choose(a, a.tokens, s, d.from))
		}
	default:
		j.verify(r, s, d.from)
		r.q.sampled = r.tokens[len(r.tokens)-1].ID
	}
}

// verify samples while the samples equal the proposed tokens, and one token after them.
func (j *sampleJob) verify(r *row, s *sampling.Sampler, at int) {
	tokens := r.q.tokens
	for i := range len(r.drafts) + 1 {
		t := j.choose(r.q, tokens, s, at+i)
		r.tokens = append(r.tokens, t)
		if i == len(r.drafts) || t.ID != r.drafts[i] {
			return
		}
		// What is written after the tokens of the sequence is what update will
		// append there.
		tokens = append(tokens, t.ID)
	}
}

// logits are row i of the logits of the step.
func (j *sampleJob) logits(i int) []float32 { return j.output.logits[(i-j.first)*j.vocab:][:j.vocab] }

// choose samples the next token of an answer after tokens, which include its
// prompt, from row i of the logits.
func (j *sampleJob) choose(q *sequence, tokens []int32, s *sampling.Sampler, i int) Token {
	state, logits := q.state(tokens), j.logits(i)
	var t Token
	if j.output.largest != nil && q.params.TakesLargest(state) {
		t.ID = j.output.largest[i-j.first]
	} else {
		t.ID = s.Sample(&q.params, state, logits)
	}
	if q.params.Logprobs >= 0 {
		t.Logprob, t.Top = s.TopLogprobs(logits, t.ID, q.params.Logprobs)
	}
	return t
}
