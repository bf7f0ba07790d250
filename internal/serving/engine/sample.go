package engine

import (
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/parallel"
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
	d, s := &j.draws[i], &j.samplers[worker]
	r := &j.rows[d.row]
	d.finite = true
	switch {
	case d.place > 0:
		q := r.q
		t, logits := Token{ID: q.tokens[d.place]}, j.logits(d.from)
		t.Rank = sampling.Rank(logits, t.ID)
		t.Logprob, t.Top, d.finite = s.TopLogprobs(logits, t.ID, q.params.PromptLogprobs)
		q.stream.prompt[d.place] = t
	case r.q.waiting > 0:
		for _, a := range r.q.stream.answers {
			t, ok := j.choose(a, a.tokens, s, d.from)
			d.finite = d.finite && ok
			r.tokens = append(r.tokens, t)
		}
	default:
		d.finite = j.verify(r, s, d.from)
		r.q.sampled = 0 // if there is none, the row of the next step counts for nothing
		if n := len(r.tokens); n > 0 {
			r.q.sampled = r.tokens[n-1].ID
		}
	}
}

// verify samples while the samples equal the proposed tokens, and one token after them. If logits after a proposed
// token are not finite, it leaves them to the next step: the answer may end before.
func (j *sampleJob) verify(r *row, s *sampling.Sampler, at int) (finite bool) {
	tokens := r.q.tokens
	for i := range len(r.drafts) + 1 {
		t, ok := j.choose(r.q, tokens, s, at+i)
		if !ok {
			return i > 0
		}
		r.tokens = append(r.tokens, t)
		if i == len(r.drafts) || t.ID != r.drafts[i] {
			break
		}
		// What is written after the tokens of the sequence is what update will
		// append there.
		tokens = append(tokens, t.ID)
	}
	return true
}

// logits are row i of the logits of the step.
func (j *sampleJob) logits(i int) []float32 { return j.output.logits[(i-j.first)*j.vocab:][:j.vocab] }

// choose samples the next token of an answer after tokens, which include its
// prompt, from row i of the logits. finite is false if they are no numbers to choose from.
func (j *sampleJob) choose(q *sequence, tokens []int32, s *sampling.Sampler, i int) (t Token, finite bool) {
	state, logits := q.state(tokens), j.logits(i)
	if j.output.largest != nil && (j.output.largest[i-j.first] < 0 || q.params.TakesLargest(state)) {
		t.ID = j.output.largest[i-j.first]
	} else {
		t.ID = s.Sample(&q.params, state, logits)
	}
	finite = t.ID >= 0
	if finite && q.params.Logprobs >= 0 {
		t.Logprob, t.Top, finite = s.TopLogprobs(logits, t.ID, q.params.Logprobs)
	}
	return t, finite
}
