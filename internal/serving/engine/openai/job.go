package openai

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"llmmemory/internal/serving/engine"
)

// A job is the work of an engine for an HTTP request: a stream for each prompt.
type job struct {
	streams []*engine.Stream
	source  source
	prompts []prompt // made by source
	answer  *answer
	n       int // answers to a prompt that the client gets
	bestOf  int // answers to a prompt that the engine generates
	timings bool

	// promptOnly leaves out the answers (echo with max_tokens 0). The engine generates a token of each, as vLLM's does.
	promptOnly bool
}

type prompt struct {
	tokens []int32
	text   string // as the client gave it; "" if it gave tokens or messages
}

// A part is an answer, or a new part of it.
type part struct {
	index  int
	prompt prompt
	first  bool // nothing of the answer was sent before
	text   string
	tokens []engine.Token
	prefix []engine.Token // the prompt with its log probabilities, if they were requested
	finish engine.Finish

	consumed int    // tokens of the answer so far
	place    *place // where the next token begins

	// Fields of vLLM.
	stopReason     any
	promptLogprobs promptLogprobs
}

// score returns the log probability of the answer.
func (p *part) score() float64 {
	sum := 0.0
	for _, t := range p.tokens {
		sum += float64(t.Logprob.Value)
	}
	return sum
}

// do submits the prompts of a job and writes the answers.
func (s *Server) do(w http.ResponseWriter, r *http.Request, c *common, request engine.Request, j *job) (err error) {
	if request.Constraint, err = s.constraint(r.Context(), c); err != nil {
		return err
	}
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

// submit submits all prompts of a job to the engine, or returns an error and submits none.
func (s *Server) submit(w http.ResponseWriter, from *http.Request, r engine.Request, j *job) error {
	j.bestOf = r.N
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

// trim removes the answer from an event with promptOnly.
func (j *job) trim(e engine.Event) engine.Event {
	if j.promptOnly && e.Err == nil {
		e.Text, e.Tokens, e.Finish, e.StopReason = "", nil, engine.FinishLength, nil
	}
	return e
}

// admit makes the prompts of a job, checks the request with each of them, and counts it against the limits of its key.
// A request that is refused counts nothing. If the engine refuses the request, the caller must call giveBack.
func (s *Server) admit(
	w http.ResponseWriter, from *http.Request, j *job, r engine.Request,
) (giveBack func(), err error) {
	c := s.config.Engine.Config()
	// All answers must be able to run or wait at the same time, but not all beams, for which bestOf is 0.
	most := min(s.config.MaxTexts, 1+(c.MaxNumSeqs+c.MaxWaiting-1)/max(1, j.bestOf))
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

// count makes the prompts of a job and checks them. It returns the largest number of tokens that they and their answers
// can have.
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
	j.source.make = nil // it refers to the texts, which are no longer needed
	c := s.config.Engine.Config()
	for _, p := range j.prompts {
		r.Prompt = p.tokens
		if err := r.Check(c.MaxModelLen, c.Model.VocabSize); err != nil {
			return 0, err
		}
		tokens += len(p.tokens) + r.N*min(r.MaxTokens, c.MaxModelLen-len(p.tokens))
	}
	return tokens, j.checkPromptLogprobs(&r)
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

// whole writes the answers when all are complete.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, j *job) error {
	parts := make([]part, len(j.streams)*j.bestOf)
	texts := make([]strings.Builder, len(parts))
	made := 0
	for n := range j.merge(r.Context()) {
		for _, e := range n.events {
			if e.Err != nil {
				return e.Err
			}
			e = j.trim(e)
			at := n.prompt*j.bestOf + e.Index
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
		answers := parts[i*j.bestOf:][:j.bestOf]
		prefix := answers[0].prefix // only the first answer has it
		logs := j.answer.promptLogprobs(prefix)
		for k := range answers {
			p := &answers[k]
			p.prompt, p.first, p.prefix, p.text, p.place = prompt, true, prefix, texts[i*j.bestOf+k].String(), new(place)
			p.promptLogprobs = logs
		}
		if j.n < j.bestOf {
			answers = best(answers, j.n)
		}
		for k := range answers {
			answers[k].index = i*j.n + k
			choices = append(choices, j.answer.whole(&answers[k]))
		}
	}
	u := j.usage(made)
	recordUsage(w, u)
	body := j.answer.withPrompt(&parts[0]).with(u, choices...)
	body.Timings = j.timingsOf(made)
	writeJSON(w, http.StatusOK, body)
	return nil
}

// news are events of the stream of a prompt.
type news struct {
	prompt int
	events []engine.Event
}

// merge reads the events of all streams of a job until all answers have ended or ctx is done.
func (j *job) merge(ctx context.Context) <-chan news {
	out := make(chan news)
	var wait sync.WaitGroup
	for i, stream := range j.streams {
		wait.Go(func() {
			for {
				events, err := stream.Next(ctx)
				if err != nil || events == nil {
					return
				}
				events = slices.Clone(events) // they are valid until the next call of Next
				for k := range events {
					events[k].Tokens = slices.Clone(events[k].Tokens)
				}
				select {
				case out <- news{i, events}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		wait.Wait()
		close(out)
	}()
	return out
}
