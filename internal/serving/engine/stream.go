package engine

import (
	"context"
	"sync"
	"time"
)

// A Stream delivers the answers to a request. It stores events until the client reads them, so a slow client does not
// delay the engine.
type Stream struct {
	engine    *Engine
	number    int // among all requests, from 1
	request   *Request
	answers   []*sequence
	prompt    []Token // with PromptLogprobs >= 0
	scored    int     // leading tokens of prompt that are complete
	prefilled bool    // the prompt is computed

	mu     sync.Mutex
	events []Event
	tokens []Token  // memory of Event.Tokens of events
	read   struct { // the memory of the events that Next returned last; the next call reuses it
		events []Event
		tokens []Token
	}
	open   int // answers that have not finished
	cached int
	times  Times
	wake   chan struct{}
}

// Next returns the events since the last call, and waits if there are none. After the last event of the last answer it
// returns nil. It returns an error if ctx is done first. The events are valid until the next call.
func (s *Stream) Next(ctx context.Context) ([]Event, error) {
	for {
		s.mu.Lock()
		events, open := s.events, s.open
		if len(events) > 0 {
			s.events, s.read.events = s.read.events[:0], events
			s.tokens, s.read.tokens = s.read.tokens[:0], s.tokens
		}
		s.mu.Unlock()
		switch {
		case len(events) > 0:
			return events, nil
		case open == 0:
			return nil, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Cancel ends all answers and frees their blocks at once. It may be called at any time and several times.
func (s *Stream) Cancel() { s.engine.cancel(s) }

// CachedTokens returns how many tokens of the prompt were in the prefix cache or were loaded from a tier when the
// request was first scheduled.
func (s *Stream) CachedTokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// send adds an event, with a copy of its tokens.
func (s *Stream) send(e Event) {
	s.mu.Lock()
	if first := len(s.tokens); len(e.Tokens) > 0 {
		s.tokens = append(s.tokens, e.Tokens...)
		e.Tokens = s.tokens[first:len(s.tokens):len(s.tokens)]
	}
	s.events = append(s.events, e)
	if e.Finish != "" {
		s.open--
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// unfinished returns the number of unfinished answers. The caller holds the engine's lock.
func (s *Stream) unfinished() int {
	n := 0
	for _, q := range s.answers {
		if !q.done {
			n++
		}
	}
	return n
}

// Times has the time when a request was first scheduled, and the times when the first and the last token of its
// answers were sampled. A time is zero until its event has happened.
type Times struct{ Started, First, Last time.Time }

// Times returns the request's times so far.
func (s *Stream) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// begin records that the request is scheduled and has the given number of cached tokens.
func (s *Stream) begin(now time.Time, cached int) {
	s.mu.Lock()
	s.times.Started, s.cached = now, cached
	s.mu.Unlock()
}

// noteToken records the time of a token.
func (s *Stream) noteToken(now time.Time) {
	s.mu.Lock()
	if s.times.First.IsZero() {
		s.times.First = now
	}
	s.times.Last = now
	s.mu.Unlock()
}
