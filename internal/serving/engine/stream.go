package engine

import (
	"context"
	"sync"
	"time"
)

// A Stream delivers the answers to a request. Events are kept until they are
// read, so that a slow reader never holds the engine up.
type Stream struct {
	engine  *Engine
	number  int // among all requests, from 1
	request *Request
	answers []*sequence
	prompt  []Token // with logprobs
	scored  int     // tokens of prompt that are complete
	through bool    // the prompt is computed

	mu     sync.Mutex
	events []Event
	tokens []Token // of events
	read   struct {
		events []Event
		tokens []Token
	} // what Next returned last
	open   int // answers that have not finished
	cached int
	times  Times
	wake   chan struct{}
}

// Next returns what has happened since the last call, at least one event. It
// returns nil once all answers have finished and were read, and an error if ctx
// ends before. The events are good until the next call.
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

// Cancel ends all answers and frees their blocks at once. It may be called at any
// time, and more than once.
func (s *Stream) Cancel() { s.engine.cancel(s) }

// CachedTokens is how many tokens of the prompt were found in the cache when the
// request was first scheduled.
func (s *Stream) CachedTokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

// send keeps an event, with copies of its tokens.
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

// unfinished is how many answers go on. The engine's lock is held.
func (s *Stream) unfinished() int {
	n := 0
	for _, q := range s.answers {
		if !q.done {
			n++
		}
	}
	return n
}

// Times are when a request was first scheduled, and when the first and the last token of its answers came; zero if that
// has not happened.
type Times struct{ Started, First, Last time.Time }

// Times returns the request's times so far.
func (s *Stream) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

// begin notes that the request is scheduled, with so many tokens of its prompt found in the cache.
func (s *Stream) begin(now time.Time, cached int) {
	s.mu.Lock()
	s.times.Started, s.cached = now, cached
	s.mu.Unlock()
}

// noteToken notes that an answer has a token.
func (s *Stream) noteToken(now time.Time) {
	s.mu.Lock()
	if s.times.First.IsZero() {
		s.times.First = now
	}
	s.times.Last = now
	s.mu.Unlock()
}
