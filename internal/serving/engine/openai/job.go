package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
)

// A job is what the engine does for one HTTP request: a stream for each prompt.
type job struct {
	streams []*engine.Stream
	source  source
	prompts []prompt // of source
	answer  *answer
	n       int // answers to a prompt that are wanted
	timings bool
	of      int // answers to a prompt that are made

	// promptOnly leaves out the answers (echo with max_tokens 0). The engine makes a token
	// of each, as vLLM's does.
	promptOnly bool
}

// A prompt is what an answer continues.
type prompt struct {
	tokens []int32
	text   string // as it was given; "" if it was given as tokens, or as messages
}

// A part is an answer, or what is new of it.
type part struct {
	index  int
	prompt prompt
	first  bool // nothing of it was sent before
	text   string
	tokens []engine.Token
	prefix []engine.Token // of the prompt, if its logprobs are wanted
	finish engine.Finish

	consumed int    // tokens so far
	place    *place // after the tokens that were sent before

	// vLLM's.
	stopReason     any
	promptLogprobs promptLogprobs
}

// score is the sum of the logarithms of the tokens' probabilities.
func (p *part) score() float64 {
	sum := 0.0
	for _, t := range p.tokens {
		sum += float64(t.Logprob.Value)
	}
	return sum
}

// do answers a request whose job is known.
func (s *Server) do(w http.ResponseWriter, r *http.Request, c *common, request engine.Request, j *job) error {
	if c.UseBeamSearch {
		return s.beams(w, r, c, request, j)
	}
	if err := s.submit(w, r, request, j); err != nil {
		return err
	}
	defer j.cancel()
	j.timings = c.TimingsPerToken
	if c.Stream {
		return s.stream(w, r, j, c.StreamOptions)
	}
	return s.whole(w, r, j)
}

// submit gives the prompts of a job to the engine: all of them, or none.
func (s *Server) submit(w http.ResponseWriter, from *http.Request, r engine.Request, j *job) error {
	j.of = r.N
	if j.promptOnly {
		r.MaxTokens = 1
	}
	giveBack, err := s.admit(w, from, j, r)
	if err != nil {
		return err
	}
	for _, p := range j.prompts {
		r.Prompt = p.tokens
		stream, err := s.config.Engine.Submit(r)
		if err != nil {
			j.cancel()
			giveBack()
			return err
		}
		j.streams = append(j.streams, stream)
	}
	return nil
}

// trim removes from an event what the user does not get.
func (j *job) trim(e engine.Event) engine.Event {
	if j.promptOnly && e.Err == nil {
		e.Text, e.Tokens, e.Finish, e.StopReason = "", nil, engine.FinishLength, nil
	}
	return e
}

// admit checks a request with each of its prompts, and counts it against its key's rate. giveBack undoes that if
// the engine does not take the request in. A request that is refused costs nothing.
func (s *Server) admit(
	w http.ResponseWriter, from *http.Request, j *job, r engine.Request,
) (giveBack func(), err error) {
	c := s.config.Engine.Config()
	// all answers must be able to run or wait; beams need not
	most := min(s.config.MaxTexts, 1+(c.MaxNumSeqs+c.MaxWaiting-1)/max(1, j.of))
	switch n := j.source.count; {
	case n == 0:
		return nil, invalid("prompt", "prompt is missing.")
	case n > most:
		return nil, invalid("prompt", "There are %d prompts; at most %d are possible.", n, most)
	}
	if err := r.CheckSettings(c.Model.VocabSize); err != nil {
		return nil, err
	}
	a := s.allowed[max(0, s.key(from))]
	if err := a.check(w.Header(), time.Now()); err != nil {
		return nil, err
	}
	if err := s.config.Engine.Refuses(); err != nil {
		return nil, err
	}
	tokens, err := s.count(from, j, r)
	if err != nil {
		return nil, err
	}
	if err := a.take(w.Header(), tokens, time.Now()); err != nil {
		return nil, err
	}
	return func() { a.giveBack(w.Header(), tokens, time.Now()) }, nil
}

// count makes the prompts of a job and checks them. It returns how many tokens they and their answers have, at most.
func (s *Server) count(from *http.Request, j *job, r engine.Request) (tokens int, err error) {
	var long *engine.TooLong
	defer func() {
		if errors.As(err, &long) {
			long.Field = j.answer.field()
		}
	}()
	if j.prompts, err = s.prompts(from, j.source); err != nil {
		return 0, err
	}
	j.source.make = nil // it has the texts
	c := s.config.Engine.Config()
	for _, p := range j.prompts {
		r.Prompt = p.tokens
		if err := r.Check(c.MaxModelLen, c.Model.VocabSize); err != nil {
			return 0, err
		}
		tokens += len(p.tokens) + r.N*min(r.MaxTokens, c.MaxModelLen-len(p.tokens))
	}
	return tokens, j.checkPromptLogprobs(&r) // at most MaxTexts · MaxN · MaxModelLen tokens
}

func (j *job) cancel() {
	for _, s := range j.streams {
		s.Cancel()
	}
}

func (j *job) usage(completion int) *usage {
	u := &usage{CompletionTokens: completion, Details: &promptDetails{}}
	for i, s := range j.streams {
		u.PromptTokens += len(j.prompts[i].tokens)
		u.Details.CachedTokens += s.CachedTokens()
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// whole answers when everything is there.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, j *job) error {
	parts := make([]part, len(j.streams)*j.of)
	texts := make([]strings.Builder, len(parts))
	made := 0
	for n := range j.merge(r.Context()) {
		for _, e := range n.events {
			if e.Err != nil {
				return e.Err
			}
			e = j.trim(e)
			at := n.prompt*j.of + e.Index
			p := &parts[at]
			texts[at].WriteString(e.Text)
			p.tokens, p.finish, p.stopReason = append(p.tokens, e.Tokens...), e.Finish, e.StopReason
			if e.Prompt != nil {
				p.prefix = e.Prompt
			}
			made += len(e.Tokens)
		}
	}
	if r.Context().Err() != nil {
		recordUsage(w, j.usage(made))
		return errGone
	}
	var choices []choice
	for i, prompt := range j.prompts {
		of := parts[i*j.of:][:j.of]
		prefix := of[0].prefix // comes with the first answer
		logs := j.answer.promptLogprobs(prefix)
		for k := range of {
			p := &of[k]
			p.prompt, p.first, p.prefix, p.text, p.place = prompt, true, prefix, texts[i*j.of+k].String(), new(place)
			p.promptLogprobs = logs
		}
		if j.n < j.of {
			of = best(of, j.n)
		}
		for k := range of {
			of[k].index = i*j.n + k
			choices = append(choices, j.answer.whole(&of[k]))
		}
	}
	u := j.usage(made)
	recordUsage(w, u)
	body := j.answer.of(&parts[0]).with(u, choices...)
	body.Timings = j.timingsOf(made)
	writeJSON(w, http.StatusOK, body)
	return nil
}

// merge reads all streams of a job, and returns their events in the order in which they come.
func (j *job) merge(ctx context.Context) <-chan news {
	out := make(chan news)
	left := make(chan struct{}, len(j.streams))
	for i, stream := range j.streams {
		go func() {
			defer func() { left <- struct{}{} }()
			for {
				events, err := stream.Next(ctx)
				if err != nil || events == nil {
					return
				}
				select {
				case out <- news{i, keep(events)}:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	go func() {
		for range j.streams {
			<-left
		}
		close(out)
	}()
	return out
}

// keep copies events, which are valid until the next call of Next.
func keep(events []engine.Event) []engine.Event {
	kept := slices.Clone(events)
	for i := range kept {
		kept[i].Tokens = slices.Clone(kept[i].Tokens)
	}
	return kept
}

type news struct {
	prompt int
	events []engine.Event
}
