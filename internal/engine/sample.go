package engine

import (
	"llmmemory/internal/engine/sampling"
	"llmmemory/internal/parallel"
)

// A sampleJob samples the rows of a step on the pool.
type sampleJob struct {
	pool     *parallel.Pool
	samplers []sampling.Sampler
	rows     []row
	output   output
	vocab    int
}

func (j *sampleJob) init(pool *parallel.Pool) {
	j.samplers = make([]sampling.Sampler, pool.Size())
	j.pool = pool
}

// sample chooses the next token of every row that is through its prompt, and of
// one that has just come through, one for each answer.
func (e *Engine) sample(s *step, o output) {
	j := &e.sampling
	j.rows, j.output, j.vocab = s.rows, o, e.config.Model.VocabSize
	j.pool.Run(len(j.rows), j)
}

// Do samples for a row; see parallel.Task.
func (j *sampleJob) Do(worker, i int) {
	r, s := &j.rows[i], &j.samplers[worker]
	if r.prompt {
		j.promptLogprobs(r, s)
	}
	if !r.last {
		return
	}
	if r.q.waiting > 0 {
		for _, a := range r.q.stream.answers {
			r.tokens = append(r.tokens, j.choose(a, a.tokens, s, r.logits+r.wants-1))
		}
		return
	}
	j.verify(r, s)
	r.q.sampled = r.tokens[len(r.tokens)-1].ID
}

// verify samples as long as what was sampled is what was proposed, and once more.
func (j *sampleJob) verify(r *row, s *sampling.Sampler) {
	tokens := r.q.tokens
	for i := range len(r.drafts) + 1 {
		t := j.choose(r.q, tokens, s, r.logits+r.wants-1-len(r.drafts)+i)
		r.tokens = append(r.tokens, t)
		if i == len(r.drafts) || t.ID != r.drafts[i] {
			return
		}
		// What is written after the tokens of the sequence is what update will
		// append there.
		tokens = append(tokens, t.ID)
	}
}

func (j *sampleJob) row(i int) []float32 { return j.output.logits[i*j.vocab:][:j.vocab] }

// choose samples the next token of an answer after tokens, which include its
// prompt, from a row of logits.
func (j *sampleJob) choose(q *sequence, tokens []int32, s *sampling.Sampler, row int) Token {
	state, logits := q.state(tokens), j.row(row)
	var t Token
	if j.output.largest != nil && q.params.TakesLargest(&state) {
		t.ID = j.output.largest[row]
	} else {
		t.ID = s.Sample(&q.params, state, logits)
	}
	if q.params.Logprobs >= 0 {
		t.Logprob, t.Top = s.TopLogprobs(logits, t.ID, q.params.Logprobs)
	}
	return t
}

// promptLogprobs adds the tokens of the prompt that this step's logits are about.
// A request that was preempted computes some of them again; they are not reported
// twice.
func (j *sampleJob) promptLogprobs(r *row, s *sampling.Sampler) {
	q := r.q
	known := &q.stream.prompt
	if len(*known) == 0 {
		*known = append(*known, Token{ID: q.tokens[0]})
	}
	for k := range r.wants {
		next := r.from + k + 1
		if next != len(*known) || next >= q.prompt {
			continue
		}
		t := Token{ID: q.tokens[next]}
		t.Logprob, t.Top = s.TopLogprobs(j.row(r.logits+k), t.ID, max(q.params.Logprobs, 0))
		*known = append(*known, t)
	}
}
