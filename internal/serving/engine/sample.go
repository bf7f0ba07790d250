package engine

import (
	"cmp"

	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/parallel"
)

// A sampleJob runs draws of a step on the pool.
type sampleJob struct {
	pool     *parallel.Pool
	samplers []sampling.Sampler // one for each worker of the pool
	rows     []row
	draws    []draw
	first    int // index of output's first logits among those of the step
	output   modelOutput
	choices  []sampling.Choice // of the rows of output whose token a Device has chosen
	vocab    int
}

func (j *sampleJob) init(pool *parallel.Pool) {
	j.samplers = make([]sampling.Sampler, pool.Size())
	j.pool = pool
}

// sample runs the draws whose logits are in o.
func (e *Engine) sample(s *step, o modelOutput) {
	j := &e.sampling
	j.rows, j.output, j.vocab = s.rows, o, e.config.Model.VocabSize
	j.draws, j.first, j.choices = s.draws[s.first:s.last], s.input.start, s.choices
	if j.first > 0 {
		j.choices = nil
	}
	j.pool.Run(len(j.draws), j)
}

// Do runs draw i; see parallel.Task.
func (j *sampleJob) Do(worker, i int) {
	d, s := &j.draws[i], &j.samplers[worker]
	r := &j.rows[d.row]
	d.err = nil
	switch {
	case d.position > 0:
		q := r.q
		t, logits := Token{ID: q.tokens[d.position]}, j.logits(d.start)
		t.Rank = sampling.Rank(logits, t.ID)
		var finite bool
		if t.Logprob, t.Top, finite = s.TopLogprobs(logits, t.ID, q.params.PromptLogprobs, sampling.State{}); !finite {
			d.err = ErrNotFinite
		}
		q.stream.prompt[d.position] = t
	case r.q.waiting > 0:
		for _, a := range r.q.stream.answers {
			t, err := j.choose(a, a.tokens, s, d.start)
			d.err = cmp.Or(d.err, err)
			r.tokens = append(r.tokens, t)
		}
	default:
		d.err = j.verify(r, s, d.start)
		r.q.sampled = 0 // if no token was sampled, the request fails; then this token does not matter
		if n := len(r.tokens); n > 0 {
			r.q.sampled = r.tokens[n-1].ID
		}
	}
}

// verify samples tokens as long as they equal the drafts, and then one more token. If sampling fails after an
// accepted draft, verify returns no error, because the answer may have ended with that draft. If the answer
// has not ended, sampling fails again in the next step.
func (j *sampleJob) verify(r *row, s *sampling.Sampler, index int) error {
	tokens := r.q.tokens
	for i := range len(r.drafts) + 1 {
		t, err := j.choose(r.q, tokens, s, index+i)
		switch {
		case err != nil && i > 0:
			return nil
		case err != nil:
			return err
		}
		r.tokens = append(r.tokens, t)
		if i == len(r.drafts) || t.ID != r.drafts[i] || r.q.isComplete(len(tokens)+1) {
			break
		}
		// The tokens may share an array with q.tokens. Then append writes after the end of q.tokens. This is harmless:
		// it changes no token of q, and the method update later appends the same tokens to q.tokens.
		tokens = append(tokens, t.ID)
	}
	return nil
}

// takesLargest reports whether every token of q is the one with the largest logit, so that sampling needs no other
// logits.
func (q *sequence) takesLargest() bool {
	return q.matcher == nil && q.params.Logprobs < 0 && q.stream.request.MinTokens == 0 && q.params.TakesLargest(sampling.State{})
}

// logits returns the logits with index i in the step.
func (j *sampleJob) logits(i int) []float32 { return j.output.logits[(i-j.first)*j.vocab:][:j.vocab] }

// choose samples a token of q from row i of the logits. The parameter tokens has the prompt and the answer
// before that token. choose returns ErrNotFinite or an error of the constraint.
func (j *sampleJob) choose(q *sequence, tokens []int32, s *sampling.Sampler, i int) (t Token, err error) {
	if q.isComplete(len(tokens)) { // the step was scheduled before the answer ended, so its token is discarded
		return t, nil
	}
	logits := j.logits(i)
	state, err := q.state(tokens)
	if err != nil {
		return t, err
	}
	t.ID = j.token(q, state, s, i)
	finite := t.ID >= 0
	if finite && q.params.Logprobs >= 0 {
		var among sampling.State
		if q.stream.request.Matcher != nil {
			among = state
		}
		t.Logprob, t.Top, finite = s.TopLogprobs(logits, t.ID, q.params.Logprobs, among)
	}
	switch {
	case !finite:
		return t, ErrNotFinite
	case q.matcher != nil:
		return t, q.follow(t.ID, len(tokens)+1)
	}
	return t, nil
}

// token returns the next token of q, or -1 if row i of the logits is not finite. If a constraint allows only
// one token, it returns that token without looking at the logits. If a Device has chosen the token, it returns that one.
func (j *sampleJob) token(q *sequence, state sampling.State, s *sampling.Sampler, i int) int32 {
	if q.matcher != nil && q.onlyToken >= 0 {
		return q.onlyToken
	}
	if i < len(j.choices) && j.choices[i].Params != nil {
		return j.output.largest[i]
	}
	if largest := j.output.largest; largest != nil {
		id, unmasked := largest[i-j.first], state
		unmasked.Allowed = nil
		if id < 0 || q.params.TakesLargest(unmasked) && state.Allows(id) {
			return id
		}
	}
	return s.Sample(&q.params, state, j.logits(i))
}
