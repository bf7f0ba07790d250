package sched

// An extension is a feature that changes what is scheduled: the connector, Mamba states, the encoder, adapters and
// zeroing. Methods that only the connector or only the encoder has are not in this interface. They are called directly.
//
// Some of the methods that are called directly are also called if the scheduler has no connector or no encoder. Their
// receiver is nil in this case, and they change nothing.
type extension interface {
	startPass()                           // a pass begins; a step can take several
	startAdmission() bool                 // the running requests are scheduled; returns false if no request may be admitted
	admits(r *request) bool               // reports whether r, which waits, may run
	clip(r *request, computed, n int) int // returns how many of n tokens after the computed ones can be in the step
	scheduled(r *request)                 // r has a row in the batch
	released(r *request)                  // r waits, or has finished
	unblock() bool                        // nothing could be scheduled; reports whether to try again
	write(step *Step)                     // adds the work of the worker to the step
	failed(batches []*batch)              // these steps, the newest first, were undone
	check() error
}

// A noExtension does nothing. Extensions embed it.
type noExtension struct{}

func (noExtension) startPass()                    {}
func (noExtension) startAdmission() bool          { return true }
func (noExtension) admits(*request) bool          { return true }
func (noExtension) clip(_ *request, _, n int) int { return n }
func (noExtension) scheduled(*request)            {}
func (noExtension) released(*request)             {}
func (noExtension) unblock() bool                 { return false }
func (noExtension) write(*Step)                   {}
func (noExtension) failed([]*batch)               {}
func (noExtension) check() error                  { return nil }

// extensions are in the order in which they are called: Mamba shortens a chunk to its blocks before the encoder looks
// for the items in the chunk.
type extensions []extension

func (x extensions) clip(r *request, computed, n int) int {
	for _, e := range x {
		n = e.clip(r, computed, n)
	}
	return n
}

func (x extensions) scheduled(r *request) {
	for _, e := range x {
		e.scheduled(r)
	}
}

func (x extensions) released(r *request) {
	for _, e := range x {
		e.released(r)
	}
}
