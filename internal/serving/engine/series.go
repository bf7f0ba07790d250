package engine

// A Series is a request that is made of several, one after the other, as a beam search is. Once it has begun,
// its requests are taken in even if the queue is full or the engine drains.
type Series struct{ engine *Engine }

// Series begins a series, which End must end. The error is ErrBusy or ErrClosed.
func (e *Engine) Series() (*Series, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuses(nil); err != nil {
		return nil, err
	}
	e.series++
	return &Series{e}, nil
}

// Submit is Engine.Submit for the next request of the series. The error is a *sampling.Invalid, or ErrClosed
// when the time to drain is over.
func (s *Series) Submit(r Request) (*Stream, error) { return s.engine.submit(r, s) }

// End lets an engine that drains stop.
func (s *Series) End() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.series--
	s.engine.changed.Signal()
}

// Refuses returns the error with which Submit would refuse a request now: ErrBusy, ErrClosed or nil.
func (e *Engine) Refuses() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refuses(nil)
}

// refuses returns why the engine accepts no more of series s or, if s is nil, no requests; nil if it accepts them.
func (e *Engine) refuses(s *Series) error {
	switch {
	case e.cut, e.closed && s == nil:
		return ErrClosed
	case s == nil && e.full():
		return ErrBusy
	}
	return nil
}

// full reports whether as many answers wait as may. Those for which there is a place in the next
// step do not count as waiting; those that are not forked yet do. Series count even between two of their requests.
func (e *Engine) full() bool {
	load := e.sched.Monitor.Load()
	return load.Waiting+e.unforked >= e.config.MaxWaiting+max(0, e.config.MaxNumSeqs-load.Running) ||
		e.series >= e.config.MaxWaiting+e.config.MaxNumSeqs
}

// over reports whether the engine has nothing left to do and gets nothing more.
func (e *Engine) over() bool {
	return e.closed && len(e.live) == 0 && (e.series == 0 || e.cut)
}
