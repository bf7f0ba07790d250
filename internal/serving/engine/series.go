package engine

// A Series is a sequence of requests that belong together, such as the steps of a beam search. After
// it has begun, its requests are accepted even if the queue is full or the engine drains.
type Series struct{ engine *Engine }

// Series begins a series, which the caller must End. The error is ErrBusy, ErrClosed or a *DeviceFailure.
func (e *Engine) Series() (*Series, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(nil); err != nil {
		return nil, err
	}
	e.series++
	return &Series{e}, nil
}

// Submit adds the next request of the series. It returns an error of Request.Check if the request is not valid,
// ErrClosed if Drain cancels requests, and a *DeviceFailure if the device has failed.
func (s *Series) Submit(r Request) (*Stream, error) { return s.engine.submit(r, s) }

// End ends the series.
func (s *Series) End() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.series--
	s.engine.changed.Signal()
}

// Refuses returns the error with which Submit would refuse a request now: ErrBusy, ErrClosed, a
// *DeviceFailure or nil.
func (e *Engine) Refuses() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refuses(nil)
}

// refuses returns why the engine refuses the next request of s or, if s is nil, a new request or series.
func (e *Engine) refuses(s *Series) error {
	switch {
	case e.failure != nil:
		return e.failure
	case e.canceling, e.closed && s == nil:
		return ErrClosed
	case s == nil && e.full():
		return ErrBusy
	}
	return nil
}

// full reports whether the queue is full. It is full if the number of waiting answers is at least
//
//	MaxWaiting + max(0, MaxNumSeqs - running requests)
//
// The second term is the number of waiting answers that the next step can start. Answers that are not forked yet
// count as waiting.
//
// The queue is also full if MaxWaiting+MaxNumSeqs series are open. Each open series counts here, because it may
// submit its next request at any time, even if it has no request in the scheduler at the moment.
func (e *Engine) full() bool {
	load := e.sched.Monitor.Load()
	return load.Waiting+e.unforked >= e.config.MaxWaiting+max(0, e.config.MaxNumSeqs-load.Running) ||
		e.series >= e.config.MaxWaiting+e.config.MaxNumSeqs
}

// canEnd reports whether the loop can end.
func (e *Engine) canEnd() bool {
	return e.closed && len(e.live) == 0 && (e.series == 0 || e.canceling)
}
