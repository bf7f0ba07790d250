package sched

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type flying struct {
	step       Step
	known      map[ID][]int32 // tokens of the requests that are new to the worker
	emptySteps []*flying      // empty steps
	skip       map[ID]bool    // aborted rows that the worker does not compute
	spoiled    map[ID]bool    // rows computed from what did not come
}

type engine struct {
	*Scheduler
	worker    *worker
	ids       []ID
	held      []ID
	flights   []*flying
	spare     []*flying
	out       Outcome
	transfers engineTransfers

	pictures  bool // prompts are pictures one after the other
	reversed  bool // the last request is the most important one
	finishing bool // no more requests come, and every row samples
}

func newEngine(t *rapid.T, config Config) *engine {
	s, err := New(config)
	require.NoError(t, err)
	return &engine{Scheduler: s, worker: newWorker(&config)}
}

func (e *engine) arrival() float64 { return float64(e.added / 3) } // three of each are equal

func (e *engine) schedule(t *rapid.T) (scheduled bool) {
	f := &flying{known: map[ID][]int32{}, skip: map[ID]bool{}, spoiled: map[ID]bool{}}
	if n := len(e.spare); n > 0 {
		f, e.spare = e.spare[n-1], e.spare[:n-1]
		clear(f.known)
		clear(f.skip)
		clear(f.spoiled)
	}
	err := e.Schedule(&f.step)
	if len(e.flights) == e.config.MaxConcurrentBatches {
		require.ErrorIs(t, err, ErrOrder)
		return false
	}
	require.NoError(t, err)
	require.LessOrEqual(t, f.step.NumScheduledTokens, e.config.MaxNumBatchedTokens)
	require.NoError(t, e.Check())
	require.NoError(t, e.checkStep(&f.step))
	e.checkAdapters(t, &f.step)
	e.noteTransfers(t, &f.step)
	e.checkZeroBlocks(t, &f.step)
	for _, row := range f.step.Rows {
		if row.NumDraftTokens >= row.NumScheduledTokens { // require would take a tenth of the test's time
			t.Fatalf("%d drafts of %d tokens", row.NumDraftTokens, row.NumScheduledTokens)
		}
		if row.Kind != KindRunning {
			f.known[row.ID] = slices.Clone(e.requests.Get(uint64(row.ID)).kv.Tokens())
		}
	}
	if len(f.step.Rows) == 0 {
		if len(e.flights) == 0 {
			e.worker.begin(&f.step, nil)
			require.True(t, e.pause == PauseAll || e.Monitor.Load().Running == 0, "an empty step, although requests run")
			require.True(t, len(e.held) == len(e.ids) || e.pause != PauseNone || e.transfers.pending(), "an empty step, although a request could run")
			e.spare = append(e.spare, f)
			return false
		}
		last := e.flights[len(e.flights)-1] // the worker gets it after the steps in flight
		last.emptySteps = append(last.emptySteps, f)
		return false
	}
	e.flights = append(e.flights, f)
	return true
}

func (e *engine) process(t *rapid.T) {
	if len(e.flights) == 0 {
		t.Skip("no step is in flight")
	}
	f := e.flights[0]

	e.worker.begin(&f.step, f.known)
	jobs := e.jobs(t, f)
	for i := range jobs {
		if r := e.live(jobs[i].row.ID); r != nil && jobs[i].void { // it went back before the worker heard of this row
			e.worker.computed[r.id] = r.kv.NumComputedTokens - (r.inFlight - r.stale)
		}
	}
	e.loadRows(t, jobs)
	require.NoError(t, e.worker.run(&f.step, jobs))
	counts, tokens := e.sample(t, jobs)
	require.ErrorIs(t, e.Update(counts[1:], tokens, &e.out), ErrOrder)
	require.ErrorIs(t, e.Update(counts, append(tokens, 1), &e.out), ErrRequest)
	require.NoError(t, e.Update(counts, tokens, &e.out))
	e.flights = e.flights[1:]
	e.beginEmpty(f)
	e.spare = append(e.spare, f)
	require.NoError(t, e.Check())
	for _, done := range e.out.Done {
		e.forget(done.ID)
		require.Nil(t, e.live(done.ID))
	}
	for i := range jobs {
		if r := e.live(jobs[i].row.ID); r != nil && !jobs[i].void {
			require.Equal(t, e.worker.tokens[jobs[i].row.ID], r.kv.Tokens(), "the scheduler and the worker have the same tokens")
		}
	}
	if e.config.NumSpeculativeTokens > 0 && !e.config.AsyncScheduling {
		e.draft(t)
	}
}

func (e *engine) jobs(t *rapid.T, f *flying) []job {
	var jobs []job
	drafts := f.step.Drafts
	for _, row := range f.step.Rows {
		r := e.live(row.ID)
		j := job{row: row, start: row.NumComputedTokens, writes: row.NumScheduledTokens, drafts: slices.Clone(drafts[:row.NumDraftTokens])}
		j.void = r == nil || r.stale > 0 && r.dropStale
		j.spoiled = f.spoiled[row.ID]
		if j.gone = r == nil; j.gone && f.skip[row.ID] {
			j.writes = 0
		}
		drafts = drafts[row.NumDraftTokens:]
		if e.worker.computes && !j.void {
			j.start = e.worker.computed[row.ID]
			for i := range j.drafts {
				j.drafts[i] = rapid.Int32Range(0, 2).Draw(t, "own draft")
			}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (e *engine) sample(t *rapid.T, jobs []job) (counts, tokens []int32) {
	w := e.worker
	for i := range jobs {
		j := &jobs[i]
		id, n := j.row.ID, 0
		end := j.start + j.row.NumScheduledTokens
		switch {
		case !j.row.Samples && j.void:
		case !j.row.Samples:
			w.computed[id] = end
		case j.void:
			n = rapid.IntRange(0, 1+j.row.NumDraftTokens).Draw(t, "void")
			tokens = append(tokens, make([]int32, n)...)
		case !e.finishing && rapid.IntRange(0, 9).Draw(t, "nothing sampled") == 9:
			w.computed[id] = j.start
		default:
			for n < len(j.drafts) && j.drafts[n] >= 0 && rapid.Bool().Draw(t, "accepted") {
				n++
			}
			sampled := append(slices.Clone(j.drafts[:n]), rapid.Int32Range(0, 2).Draw(t, "token"))
			w.computed[id] = end - (len(j.drafts) - n)
			n++
			tokens = append(tokens, sampled...)
			w.tokens[id] = append(w.tokens[id], sampled...)
		}
		counts = append(counts, int32(n))
	}
	return counts, tokens
}

func (e *engine) beginEmpty(f *flying) {
	for _, empty := range f.emptySteps {
		e.worker.begin(&empty.step, nil)
	}
	f.emptySteps = nil
}

func (e *engine) fail(t *rapid.T) {
	if len(e.flights) == 0 {
		t.Skip("no step is in flight")
	}
	begun := rapid.IntRange(0, len(e.flights)).Draw(t, "begun")
	for i, f := range e.flights {
		if i >= begun {
			e.beginEmpty(f)
			continue
		}
		e.worker.begin(&f.step, f.known)
		e.worker.encoder.fail(&f.step, e.worker.extras)
		jobs := e.jobs(t, f)
		e.spoilRows(jobs)
		for i := range jobs {
			jobs[i].void, jobs[i].spoiled = true, false
			jobs[i].writes = rapid.IntRange(0, jobs[i].row.NumScheduledTokens).Draw(t, "written")
		}
		require.NoError(t, e.worker.run(&f.step, jobs))
		e.beginEmpty(f)
	}
	e.flights = nil
	require.NoError(t, e.StepFailed())
	require.NoError(t, e.Check())
	require.ErrorIs(t, e.StepFailed(), ErrOrder)
}

func (e *engine) forget(id ID) {
	e.ids = slices.DeleteFunc(e.ids, func(o ID) bool { return o == id })
	e.held = slices.DeleteFunc(e.held, func(o ID) bool { return o == id })
	e.endTransfers(id)
}

func (e *engine) draft(t *rapid.T) {
	var counts, tokens []int32
	for range e.ids {
		n := rapid.IntRange(0, e.config.NumSpeculativeTokens).Draw(t, "drafts")
		counts = append(counts, int32(n))
		for range n {
			tokens = append(tokens, rapid.Int32Range(0, 2).Draw(t, "draft"))
		}
	}
	require.NoError(t, e.SetDrafts(e.ids, counts, tokens))
}

func (e *engine) add(t *rapid.T) {
	if len(e.ids) > 10 {
		t.Skip("enough requests")
	}
	n := rapid.SampledFrom([]int{1, 3, 8, 9, 15, 16, 17, 25}).Draw(t, "tokens")
	spec := Spec{
		Tokens:    rapid.SliceOfN(rapid.SampledFrom([]int32{0, 0, 0, 1}), n, n).Draw(t, "prompt"),
		MaxTokens: rapid.SampledFrom([]int{1, 4, 10, 20}).Draw(t, "max tokens"),
		Stop:      rapid.SampledFrom([][]int32{nil, {2}}).Draw(t, "stop"),
		Priority:  rapid.IntRange(0, 2).Draw(t, "priority"),
		Arrival:   e.arrival(),
		NoRead:    rapid.IntRange(0, 9).Draw(t, "no read") == 0,
		Hold:      rapid.IntRange(0, 9).Draw(t, "hold") == 0,
	}
	if e.reversed {
		spec.Priority = -int(e.added)
	}
	e.drawTransfers(t, &spec)
	e.drawExtras(t, &spec)
	spec.MinTokens = rapid.IntRange(0, min(2, spec.MaxTokens)).Draw(t, "min tokens")
	id, err := e.Add(spec)
	if err != nil {
		require.ErrorIs(t, err, ErrRequest)
		t.Skip("it would never fit")
	}
	e.ids = append(e.ids, id)
	e.worker.extras[id] = spec.Extras
	if spec.Hold {
		e.held = append(e.held, id)
	}
}

func (e *engine) drawID(t *rapid.T) ID {
	if len(e.ids) == 0 {
		t.Skip("no request")
	}
	return rapid.SampledFrom(e.ids).Draw(t, "id")
}

func (e *engine) abort(t *rapid.T) {
	id := e.drawID(t)
	// The worker may skip a row of the aborted request, unless another request can have hit the row's blocks. Another
	// request can have hit them in two cases:
	//
	//   - Another request was admitted, or a load began, in the row's step or later.
	//   - The aborted request does not run: it was preempted, and its blocks have kept their keys.
	admitted := e.live(id).status != running
	require.Equal(t, 1, e.Abort(id, id, 0))
	e.forget(id)
	for i := len(e.flights) - 1; i >= 0; i-- {
		f := e.flights[i]
		loads := len(f.step.Loads) > 0 || slices.ContainsFunc(f.emptySteps, func(o *flying) bool { return len(o.step.Loads) > 0 })
		admitted = admitted || loads || slices.ContainsFunc(f.step.Rows, func(r Row) bool { return r.Kind != KindRunning && r.ID != id })
		if !admitted {
			f.skip[id] = true
		}
	}
}

func (e *engine) fork(t *rapid.T) {
	parent := e.drawID(t)
	if len(e.ids) > 10 {
		t.Skip("enough requests")
	}
	last := int32(-1)
	if r := e.requests.Get(uint64(parent)); r.kv.NumTokens() > r.kv.NumPromptTokens && r.kv.NumComputedTokens < r.kv.NumTokens() {
		last = rapid.Int32Range(-1, 1).Draw(t, "last")
	}
	child, err := e.Fork(parent, Child{Last: last, Arrival: e.arrival()})
	if len(e.flights) > 0 {
		require.ErrorIs(t, err, ErrOrder)
		return
	}
	require.NoError(t, err)
	e.ids = append(e.ids, child)
	e.worker.extras[child] = e.worker.extras[parent]
}

func (e *engine) reset(t *rapid.T) {
	preempt := rapid.Bool().Draw(t, "preempt")
	ok, err := e.Reset(preempt)
	require.NoError(t, err)
	require.True(t, ok || !preempt || e.connector != nil && e.connector.holdsBlocks())
}

func (e *engine) release() {
	e.Release(e.held...)
	e.held = nil
}
