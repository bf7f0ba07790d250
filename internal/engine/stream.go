package engine

import (
	"context"
	"sync"
)

// A Stream delivers the answers to a request. Events are kept until they are
// read, so that a slow reader never holds the engine up.
type Stream struct {
	engine  *Engine
	number  int // among all requests, from 1
	request *Request
	answers []*sequence
	prompt  []Token // logprobs of the prompt so far

	mu     sync.Mutex
	events []Event
	open   int // answers that have not finished
	cached int
	wake   chan struct{}
}

// Next returns what has happened since the last call, at least one event. It
// returns nil once all answers have finished and were read, and an error if ctx
// ends before.
func (s *Stream) Next(ctx context.Context) ([]Event, error) {
	for {
		s.mu.Lock()
		events, open := s.events, s.open
		s.events = nil
		s.mu.Unlock()
		if len(events) > 0 || open == 0 {
			return events, nil
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

func (s *Stream) send(e Event) {
	s.mu.Lock()
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

func (s *Stream) setCached(n int) {
	s.mu.Lock()
	s.cached = n
	s.mu.Unlock()
}
