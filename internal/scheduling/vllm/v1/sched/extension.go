package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// An extension is a feature that influences which requests run: the connector, Mamba states, the encoder, adapters
// and zeroing.
type extension interface {
	startPass()                            // a pass begins; a step can take several
	startAdmission() bool                  // the running requests are scheduled; returns false if no request may be admitted
	admits(r *request) bool                // reports whether r, which waits, may run
	match(r *request) (int, verdict)       // r waits without blocks; returns the number of tokens to load, and runs or why not
	freeBlocks() bool                      // the only running request has too few blocks; reports whether more are free now
	clip(r *request, computed, n int) int  // returns how many of n tokens after the computed ones can be in the step
	scheduled(r *request)                  // r has a row in the batch
	unscheduled(r *request) (recount bool) // a victim has lost its row; recount: others may have to compute fewer tokens
	yielded()                              // a running request has preempted itself
	released(r *request)                   // r waits, or has finished
	lost(r *request, why kvcache.Release)  // r loses its blocks
	wentBack(r *request)                   // r runs, and has fewer computed tokens than before
	landed(r *request)                     // the row with which r was admitted is updated
	computed(r *request)                   // a row of r was computed
	unblock() bool                         // nothing could be scheduled; reports whether to try again
	aborted(r *request)                    // r is about to finish, and its rows in flight may never be computed
	keeps(r *request) bool                 // r has finished; returns true if r keeps its blocks until the extension drops it
	holdsBlocks() bool                     // reports whether blocks stay in use if no request runs
	failing(step uint64)                   // steps from this number on have failed and will be undone
	write(step *Step)                      // adds the work of the worker to the step
	failed(batches []*batch)               // these steps, the newest first, were undone
	check() error
}

type noExtension struct{}

func (noExtension) startPass()                     {}
func (noExtension) startAdmission() bool           { return true }
func (noExtension) admits(*request) bool           { return true }
func (noExtension) match(*request) (int, verdict)  { return 0, runs }
func (noExtension) freeBlocks() bool               { return false }
func (noExtension) lost(*request, kvcache.Release) {}
func (noExtension) landed(*request)                {}
func (noExtension) aborted(*request)               {}
func (noExtension) keeps(*request) bool            { return false }
func (noExtension) holdsBlocks() bool              { return false }
func (noExtension) failing(uint64)                 {}
func (noExtension) clip(_ *request, _, n int) int  { return n }
func (noExtension) scheduled(*request)             {}
func (noExtension) unscheduled(*request) bool      { return false }
func (noExtension) yielded()                       {}
func (noExtension) released(*request)              {}
func (noExtension) wentBack(*request)              {}
func (noExtension) computed(*request)              {}
func (noExtension) unblock() bool                  { return false }
func (noExtension) write(*Step)                    {}
func (noExtension) failed([]*batch)                {}
func (noExtension) check() error                   { return nil }

// The order of extensions matters: Mamba cuts a chunk at the ends of its blocks before the encoder looks for items
// in the chunk.
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

func (x extensions) wentBack(r *request) {
	for _, e := range x {
		e.wentBack(r)
	}
}

func (x extensions) computed(r *request) {
	for _, e := range x {
		e.computed(r)
	}
}

func (x extensions) lost(r *request, why kvcache.Release) {
	for _, e := range x {
		e.lost(r, why)
	}
}
