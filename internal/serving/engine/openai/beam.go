package openai

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/structured"
)

// Beam search works as in vLLM's server. In each step, every beam is a request for one token and the log
// probabilities of the most likely tokens. The beams find their common tokens in the prefix cache. If the request
// restricts its answers, for example to a JSON schema, a beam continues only with tokens that this restriction
// allows. As in vLLM, the log probabilities are those of the model without the restriction.

// maxBeams is the largest number of beams. A step asks the engine for the most likely tokens of each beam,
// twice as many as there are beams.
const maxBeams = sampling.MaxLogprobs / 2

// maxLengthPenalty limits the magnitude of length_penalty. For the score of a beam, its log probability is divided by
// its length to the power of length_penalty. The limit keeps this power finite.
const maxLengthPenalty = 10

// A beamField is a field of engine.Request for which beam search supports only certain values.
type beamField struct {
	field, param string // its names in Go and in JSON
	supported    func(r *engine.Request) bool
	alternative  string // what to do instead, or ""
}

// beamFields lists the fields for which beam search supports only certain values. Beam search ranks beams by
// the log probabilities of the model. It draws no random tokens and adjusts no logits.
var beamFields = []beamField{
	{"MinTokens", "min_tokens", func(r *engine.Request) bool { return r.MinTokens == 0 }, ""},
	{"Stop", "stop", func(r *engine.Request) bool { return len(r.Stop) == 0 }, "stop_token_ids is"},
	{"Logprobs", "logprobs", func(r *engine.Request) bool { return r.Logprobs < 0 }, ""},
	{"PromptLogprobs", "prompt_logprobs", func(r *engine.Request) bool { return r.PromptLogprobs < 0 }, ""},
	{"Temperature", "temperature", func(r *engine.Request) bool { return r.Temperature == 0 || r.Temperature == 1 },
		"leave it out, or give 0"},
	{"TopP", "top_p", func(r *engine.Request) bool { return r.TopP == 1 }, ""},
	{"TopK", "top_k", func(r *engine.Request) bool { return r.TopK == 0 }, ""},
	{"MinP", "min_p", func(r *engine.Request) bool { return r.MinP == 0 }, ""},
	{"PresencePenalty", "presence_penalty", func(r *engine.Request) bool { return r.PresencePenalty == 0 }, ""},
	{"FrequencyPenalty", "frequency_penalty", func(r *engine.Request) bool { return r.FrequencyPenalty == 0 }, ""},
	{"RepetitionPenalty", "repetition_penalty", func(r *engine.Request) bool { return r.RepetitionPenalty == 1 }, ""},
	{"LogitBias", "logit_bias", func(r *engine.Request) bool { return len(r.LogitBias) == 0 }, ""},
}

// unsupportedByBeams returns an error for the first field of a request whose value beam search does not support.
func unsupportedByBeams(r *engine.Request) error {
	for _, f := range beamFields {
		switch {
		case f.supported(r):
		case f.alternative != "":
			return invalid(f.param, "%s is not supported with use_beam_search; %s.", f.param, f.alternative)
		default:
			return invalid(f.param, "%s is not supported with use_beam_search.", f.param)
		}
	}
	return nil
}

// A beam is a candidate for an answer: an earlier beam and one more token.
type beam struct {
	before  *beam // nil for the empty answer
	token   int32
	length  int     // of prompt and answer
	logprob float64 // of the answer
	ended   bool    // by the token

	matcher  *structured.Matcher // is after the token; nil without a form, and unless the beam goes on
	complete bool                // no token can follow in the form
}

// answer returns the tokens after a prompt.
func (b *beam) answer(prompt []int32) []int32 {
	tokens := make([]int32, b.length-len(prompt))
	for i := len(tokens) - 1; i >= 0; i-- {
		tokens[i], b = b.token, b.before
	}
	return tokens
}

// score returns the score of a beam as vLLM's get_beam_search_score computes it. The length is that of the prompt and the
// answer, without the token that ends the answer.
func (b *beam) score(penalty float64) float64 {
	n := b.length
	if b.ended {
		n--
	}
	return b.logprob / math.Pow(float64(n), penalty)
}

// A search is a beam search.
type search struct {
	series      *engine.Series
	next        func(ctx context.Context, prompt []int32, beams []*beam) ([][]sampling.Logprob, error) // most likely tokens
	form        *structured.Constraint                                                                 // or nil
	width       int
	maxModelLen int     // limit of a sequence's tokens
	maxTokens   int     // limit of an answer's tokens
	ends        []int32 // tokens that end an answer
	eos         []int32 // the ones of ends that are the model's
	penalty     float64
	salt        string
	adapter     int
	ignoreEOS   bool // the model's own end tokens do not end an answer
}

// search returns the beam search that a request asks for.
func (s *Server) search(c *common, r *engine.Request) (*search, error) {
	switch {
	case r.N > maxBeams:
		return nil, invalid("n", "n or best_of is %d; at most %d beams are possible.", r.N, maxBeams)
	case c.Stream:
		return nil, invalid("stream", "Beam search has no streaming: all beams are known at its end only.")
	case c.TimingsPerToken:
		return nil, invalid("timings_per_token", "timings_per_token is not supported with use_beam_search.")
	case r.MaxTokens < 1:
		return nil, invalid("max_tokens", "max_tokens is %d; it must be at least 1.", r.MaxTokens)
	case c.LengthPenalty != nil && !(math.Abs(*c.LengthPenalty) <= maxLengthPenalty):
		return nil, invalid("length_penalty", "length_penalty is %v; it must be from %d to %d.",
			*c.LengthPenalty, -maxLengthPenalty, maxLengthPenalty)
	}
	if err := r.Params.Check(s.config.Engine.Config().Model.VocabSize); err != nil {
		return nil, err
	}
	if err := unsupportedByBeams(r); err != nil {
		return nil, err
	}
	f := &search{width: r.N, maxTokens: r.MaxTokens, ends: r.StopTokenIDs, penalty: 1, salt: r.CacheSalt, adapter: r.Adapter,
		ignoreEOS: r.IgnoreEOS}
	f.next, f.maxModelLen = f.step, s.config.Engine.Config().MaxModelLen
	if c.LengthPenalty != nil {
		f.penalty = *c.LengthPenalty
	}
	if !r.IgnoreEOS {
		f.eos = s.config.Engine.Config().End
		f.ends = append(slices.Clone(f.ends), f.eos...)
	}
	return f, nil
}

// run returns the best beams after a prompt, the best first.
func (f *search) run(ctx context.Context, prompt []int32) ([]*beam, error) {
	first := &beam{length: len(prompt)}
	if f.form != nil {
		first.matcher = f.form.NewMatcher()
	}
	live := []*beam{first}
	var done []*beam // the best beams that have ended
	for step := 0; step < f.maxTokens && len(live) > 0 && live[0].length < f.maxModelLen; step++ {
		tops, err := f.next(ctx, prompt, live)
		if err != nil {
			return nil, err
		}
		var next []*beam
		for i, b := range live {
			for _, t := range tops[i] {
				c := &beam{before: b, token: t.Token, length: b.length + 1, logprob: b.logprob + float64(t.Value),
					ended: slices.Contains(f.ends, t.Token)}
				if err := c.follow(); err != nil {
					return nil, err
				}
				if c.ended || c.complete {
					done = append(done, c)
				} else {
					next = append(next, c)
				}
			}
		}
		next, done = f.best(next), f.best(done)
		for _, c := range next {
			if err := c.goOn(); err != nil {
				return nil, err
			}
		}
		for _, b := range live {
			b.matcher = nil
		}
		live = next
	}
	if f.form != nil && len(done) > 0 { // what MaxTokens has cut does not have the form
		return append(done, live[:min(len(live), f.width-len(done))]...), nil
	}
	return f.best(append(done, live...)), nil
}

// follow sets b.complete: whether the form allows no token after b's.
func (b *beam) follow() error {
	m := b.before.matcher
	if m == nil || b.ended {
		return nil
	}
	if err := m.Accept(int(b.token)); err != nil {
		return fmt.Errorf("a beam with a form: %w", err)
	}
	b.complete = m.Done()
	return m.Rollback(1)
}

// goOn sets b.matcher, which the next step needs.
func (b *beam) goOn() error {
	if b.before.matcher == nil {
		return nil
	}
	b.matcher = b.before.matcher.Fork()
	return b.matcher.Accept(int(b.token))
}

// best returns the beams with the highest scores, at most f.width, in descending order. Equal beams keep their order.
func (f *search) best(beams []*beam) []*beam {
	slices.SortStableFunc(beams, func(a, b *beam) int { return cmp.Compare(b.score(f.penalty), a.score(f.penalty)) })
	n := min(f.width, len(beams))
	clear(beams[n:])
	return beams[:n]
}

// step returns the most likely next tokens of each beam. The engine computes them.
func (f *search) step(ctx context.Context, prompt []int32, beams []*beam) (tops [][]sampling.Logprob, err error) {
	j := &job{}
	defer j.cancel()
	for _, b := range beams {
		r := engine.Request{Prompt: slices.Concat(prompt, b.answer(prompt)), MaxTokens: 1, IgnoreEOS: b.matcher == nil || f.ignoreEOS,
			CacheSalt: f.salt, Adapter: f.adapter, Params: sampling.Default(), Matcher: b.matcher}
		r.Temperature, r.Logprobs = 0, 2*f.width
		stream, err := f.series.Submit(r)
		if err != nil {
			return nil, err
		}
		j.streams = append(j.streams, stream)
	}
	for _, stream := range j.streams {
		for {
			events, err := stream.Next(ctx)
			if err != nil {
				return nil, err
			}
			if events == nil {
				break
			}
			for _, e := range events {
				if e.Err != nil {
					return nil, e.Err
				}
				tops = append(tops, e.Tokens[0].Top)
			}
		}
	}
	return tops, nil
}

// beams answers a request with use_beam_search. The answer has the best beams of each prompt.
func (s *Server) beams(w http.ResponseWriter, r *http.Request, c *common, request engine.Request, j *job) error {
	f, err := s.search(c, &request)
	if err != nil {
		return err
	}
	giveBack, err := s.admit(w, r, j, request)
	if err != nil {
		return err
	}
	if f.form, err = s.constraint(r, j); err != nil {
		giveBack()
		return err
	}
	if f.series, err = s.config.Engine.Series(); err != nil {
		giveBack()
		return err
	}
	defer f.series.End()
	s.shrink(r, j)
	u := &usage{Details: &promptDetails{}}
	var choices []choice
	j.bestOf = j.n
	out := j.output()
	for i, prompt := range j.prompts {
		found, err := f.run(r.Context(), prompt.tokens)
		if r.Context().Err() != nil {
			return errGone
		}
		if err != nil {
			return err
		}
		u.PromptTokens += len(prompt.tokens)
		for k, b := range found[:min(j.n, len(found))] {
			p, err := out.next(i, f.event(j, k, prompt.tokens, b, request.IncludeStop))
			if err != nil {
				return err
			}
			p.index = len(choices)
			choices = append(choices, j.answer.whole(p))
		}
	}
	u.CompletionTokens = out.made
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	recordUsage(w, u)
	writeJSON(w, http.StatusOK, j.answer.withPrompt(&part{prompt: j.prompts[0]}).withChoices(u, choices...))
	return nil
}

// event returns the event that reports beam b as the complete answer with index k to a prompt.
func (f *search) event(j *job, k int, prompt []int32, b *beam, includeStop bool) engine.Event {
	e := engine.Event{Index: k, Finish: engine.FinishLength}
	answer := b.answer(prompt)
	for _, id := range answer {
		e.Tokens = append(e.Tokens, engine.Token{ID: id})
	}
	switch {
	case b.ended:
		e.Finish = engine.FinishStop
		if !slices.Contains(f.eos, b.token) {
			e.StopReason = b.token
		}
		if !includeStop {
			answer = answer[:len(answer)-1]
		}
	case b.complete:
		e.Finish = engine.FinishStop
	}
	e.Text = j.answer.text(answer)
	return e
}
