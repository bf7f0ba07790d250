package sched

import "llmmemory/internal/scheduling/vllm/v1/kvcache"

// An extension is a feature that takes part in the choice of what runs: loads and sends of a connector, states of Mamba
// groups, outputs of an encoder, adapters, blocks to zero. A scheduler has those that its Config asks for; the rest of
// the package does not know which.
type extension interface {
	startPass()                            // running requests are chosen next; a step can take several passes
	startAdmission() bool                  // waiting ones are next; false: none may be admitted in this pass
	admits(r *request) bool                // reports whether r, which waits, may run now
	match(r *request) (int, verdict)       // r has no blocks: how many tokens after Scheduler.hit are loaded with its row; unless the verdict is runs, it gets none now
	freeBlocks() bool                      // the only running request has too few blocks; true: some are free now
	clip(r *request, computed, n int) int  // returns how many of n tokens after the computed ones can be in the step
	scheduled(r *request)                  // r has a row in the batch
	unscheduled(r *request) (recount bool) // a victim has lost its row; recount: fewer tokens of others may be possible
	yielded()                              // a running request has preempted itself
	released(r *request)                   // r waits, or has finished, and needs nothing that it does not load
	lost(r *request, why kvcache.Release)  // r loses its blocks
	wentBack(r *request)                   // r runs, with fewer computed tokens than before
	landed(r *request)                     // the row with which r was admitted is updated
	computed(r *request)                   // a row of r was computed
	unblock() bool                         // nothing could be scheduled; true: it can now
	aborted(r *request)                    // r is about to be finished; what is in flight may never be computed
	keeps(r *request) bool                 // r has finished; true: it keeps its blocks, and the extension drops it later
	holdsBlocks() bool                     // reports whether blocks stay in use if no request runs
	failing(step uint64)                   // steps from this number on have failed; nothing was taken back yet
	write(step *Step)                      // adds to the step what the worker must do
	failed(batches []*batch)               // these steps have failed, newest first; their requests are back where they were
	check() error
}

// A noExtension does nothing. Extensions embed it.
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

// extensions are asked in this order: loads that are over come first, and a chunk is cut to Mamba's blocks before items
// are looked for in it.
type extensions []extension

func (x extensions) startPass() {
	for _, e := range x {
		e.startPass()
	}
}

func (x extensions) startAdmission() bool {
	ok := true
	for _, e := range x {
		ok = e.startAdmission() && ok
	}
	return ok
}

func (x extensions) admits(r *request) bool {
	for _, e := range x {
		if !e.admits(r) {
			return false
		}
	}
	return true
}

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

func (x extensions) unscheduled(r *request) (recount bool) {
	for _, e := range x {
		recount = e.unscheduled(r) || recount
	}
	return recount
}

func (x extensions) yielded() {
	for _, e := range x {
		e.yielded()
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

func (x extensions) match(r *request) (external int, v verdict) {
	for _, e := range x {
		if external, v = e.match(r); external > 0 || v != runs {
			return external, v
		}
	}
	return 0, runs
}

func (x extensions) lost(r *request, why kvcache.Release) {
	for _, e := range x {
		e.lost(r, why)
	}
}
