// Package compare plays a trace on a submission and on the oracle, and reports the differences.
//
// It reads the submission's memory by following the submission's pointers, which may have any value. A pointer to
// memory outside the submission's allocations is a difference.
package compare

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/runner"
	"llmmemory/internal/machine"
)

// Patience limits the processor time of a call and of a process. Tests of submissions with endless loops shorten it
// before they play a trace.
var Patience = runner.Patience{Call: 2 * time.Second, Process: 8 * time.Second}

// Limits of what PatienceWith adds. A right submission that searches a list of 100,000 sequences in each of the 100,000
// calls that a step can make visits 10^10 list nodes. maxWalk is 30 ns for each of them. A submission with an endless
// loop uses up maxWalk while somebody waits.
const (
	maxWalk  = 5 * time.Minute  // for one call of the runner, which is one step
	maxWalks = 30 * time.Minute // for the process
)

// PatienceWith returns the Patience for a trace. It adds time for each step that consists of many calls. Each call may
// search a list of all sequences that the trace can have made, so the time is proportional to calls times n, where n is
// the larger of the number of calls and the number of sequences. The numbers of a step that are ids, lengths or records
// add nothing.
func PatienceWith(ops []trace.Op) runner.Patience {
	var longest, all time.Duration
	sequences := 0
	for _, op := range ops {
		calls := op.Calls()
		if k := op.Kind.Single(); k == trace.Create || k == trace.Fork {
			sequences += calls
		}
		if op.Kind.Many() {
			n := min(max(calls, sequences), 1_000_000) // so that the product fits
			walk := min(maxWalk, time.Duration(calls)*time.Duration(n)*100*time.Nanosecond)
			longest, all = max(longest, walk), min(maxWalks, all+walk)
		}
	}
	return runner.Patience{Call: Patience.Call + longest, Process: Patience.Process + all}
}

// A player plays a trace on the submission and on the oracle.
type player struct {
	expected      *oracle.World
	subject       *runner.Process
	engines       [trace.Engines]uint64 // addresses, 0: none
	pools         [trace.Engines]uint64 // addresses, including the slack in front
	used          uint64                // bytes used of the pools' region
	heap                                // the submission's allocations
	ends          [trace.Engines]uint64 // addresses of the end of a large pool that can be touched; 0: none
	poolsWritable bool                  // every call may write to the pools
	made          made                  // the sequence that the grader created last
	inited        bool                  // the submission's llm_init has made an engine
	trouble       error                 // an error of the grader
}

// Play plays a trace on a program, which is a submission linked with grader/process/runner.c. An error means that the
// grader or the machine failed (ErrMemory), not the submission.
//
// After a difference, Play goes on from the submission's state if that is consistent enough; otherwise it stops. It also
// stops after maxDifferences.
//
// The pools are writable only during append_kv (handout.WriteOnlyOnAppend). If the submission dies in another call,
// Play plays the trace again with writable pools, to see what the submission writes. A call that does not come back is
// not played again.
func Play(program string, ops []trace.Op) (Result, error) {
	r, err := play(program, ops, false)
	if errors.Is(err, cputime.ErrStarved) || errors.Is(err, cputime.ErrSlow) {
		r, err = play(program, ops, false)
	}
	if errors.Is(err, runner.ErrKilled) {
		return r, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	d := r.last()
	if err == nil && d != nil && d.Channel == Death && hasLarge(ops) {
		if left, known := machine.AvailableMemory(); known && left < memoryForLarge {
			return r, ErrMemory
		}
	}
	if err != nil || d == nil || d.Channel != Death || d.Hangs || d.Op.Kind.Single() == trace.Append {
		return r, err
	}
	open, err := play(program, ops, true)
	if err != nil || slices.ContainsFunc(open.All, func(o *Difference) bool { return o.Step == d.Step }) {
		return open, err
	}
	wrote := differs(Pool, "the pool", "not written in this call", "written, with the bytes it had")
	wrote.Step, wrote.Op, wrote.Engine = d.Step, d.Op, max(0, d.Op.Engine)
	r.All[len(r.All)-1] = wrote
	return r, nil
}

func play(program string, ops []trace.Op, poolsWritable bool) (Result, error) {
	expected, err := oracle.New()
	if err != nil {
		return Result{}, err
	}
	defer expected.Close()
	process, err := runner.Start(program, PatienceWith(ops))
	if errors.Is(err, runner.ErrStart) && len(ops) > 0 {
		d := differs(Death, theProgram, "to start", err)
		d.Op = ops[0]
		return Result{All: []*Difference{d}}, nil
	}
	if err != nil {
		return Result{}, err
	}
	defer process.Close()
	p := &player{expected: expected, subject: process, heap: newHeap(), poolsWritable: poolsWritable}
	var r Result
	for i, op := range ops {
		found := p.step(op)
		if p.trouble != nil {
			return Result{}, fmt.Errorf("step %d, %s: %w", i+1, op, p.trouble)
		}
		goOn := true
		for _, d := range found {
			d.Step, d.Op = i, op
			r.All = append(r.All, d)
			goOn = goOn && d.Channel != Death
		}
		if len(found) > 0 && (!goOn || len(r.All) >= maxDifferences || !p.adopt()) {
			break
		}
	}
	r.Shapes, r.Calls = p.shapes, process.Refused()
	d := r.last()
	if d == nil || !d.Hangs {
		if err := process.Slow(); err != nil {
			return Result{}, err
		}
	}
	if d != nil {
		d.Said = process.Said()
	}
	return r, nil
}

const maxDifferences = 8 // of a trace; the step that reaches this number may add more

func (p *player) step(op trace.Op) []*Difference {
	if op.Given || op.Kind.Outside() {
		if err := p.write(p.expected.Write(op)); err != nil {
			return []*Difference{p.death(err)}
		}
		p.reserved(op)
		return nil
	}
	if err := p.subject.GiveBack(p.released); err != nil {
		return []*Difference{p.death(err)}
	}
	p.released = p.released[:0]
	pools, ends := p.pools, p.ends
	request, err := p.request(op)
	if err != nil {
		return []*Difference{p.death(err)}
	}
	going := p.going(op)
	live, m := p.expected.Live(), p.moment(op)
	outcome := p.expected.Play(op)
	if !p.reserved(op) {
		return nil
	}
	reply, err := p.subject.Do(request)
	if err != nil {
		d := p.death(err)
		d.Facts = outcomeFacts(m.facts, outcome)
		p.fault(d, op, &m)
		return []*Difference{d}
	}
	before := len(p.live)
	found := p.account(op, outcome, going, reply.Events)
	if op.Kind == trace.Init && outcome.Refused() {
		p.pools, p.ends = pools, ends
	}
	state := p.state(op, outcome, reply.Returned)
	if state != nil && state.Channel == Returned { // a call that should fail succeeds: its allocations follow from that
		found = slices.DeleteFunc(found, func(d *Difference) bool { return d.Field == Allocates })
	}
	if d := p.balance(op, going, p.expected.Live()-live, len(p.live)-before); d != nil && state == nil {
		found = append(found, d)
	}
	if state != nil {
		found = append(found, state)
	}
	for _, d := range found {
		d.Op = op
		d.Facts = p.facts(d, &m, outcome)
	}
	return found
}

// state compares everything except the heap.
func (p *player) state(op trace.Op, outcome oracle.Outcome, returned int64) *Difference {
	if d := p.returned(op, outcome, returned); d != nil {
		return d
	}
	for i := range p.engines {
		if d := p.engine(i); d != nil {
			d.Engine = i
			return d
		}
	}
	if returned == 0 {
		return nil
	}
	switch op.Kind {
	case trace.Creates, trace.Forks:
		p.sequenceShape(op.Kind.Single(), p.last(op.Engine))
	case trace.Create, trace.Fork:
		if uint64(returned) != p.last(op.Engine) {
			return differs(Returned, "the returned pointer", "the new sequence, the last of the list", "another")
		}
		p.sequenceShape(op.Kind, uint64(returned))
	case trace.Init:
		p.shape(op.Kind, "engine->ref_count", view[engineStruct](p, uint64(returned)).refCount)
	}
	return nil
}

// death returns the difference for an error from the process: the process has ended, or has reached its time limit.
// Any other error is a failure of the grader; death stores it in p.trouble.
func (p *player) death(err error) *Difference {
	if !errors.Is(err, cputime.ErrTime) && !errors.Is(err, runner.ErrDied) {
		p.trouble = err
	}
	d := differs(Death, "the call", "a return", err)
	d.Hangs = errors.Is(err, cputime.ErrTime)
	return d
}

func (p *player) request(op trace.Op) (r runner.Request, err error) {
	r = runner.Request{Call: calls[op.Kind], A: op.A, B: op.B, Fail: uint32(op.Fail)}
	if op.Kind.Single() != trace.Append && !p.poolsWritable {
		r.Call |= runner.ReadOnly
	}
	switch op.Kind {
	case trace.Forks, trace.Creates, trace.Appends:
		r.Size = uint64(op.C)
	case trace.Frees:
		r.Size = uint64(op.B)
	}
	if op.Kind != trace.Init {
		if op.Engine != trace.None {
			r.Engine = p.engines[op.Engine]
		}
		return r, nil
	}
	r.Size = 10 * course.BlockSize
	if op.A >= 0 {
		r.Size = uint64(op.Pool())
		r.Engine, err = p.newPool(op)
	}
	return r, err
}

// Offsets of a pool in a page. An address with poolOffset is a multiple of 16, as addresses from malloc are. It is not
// a multiple of 32. An address with intOffset is only a multiple of 4 (trace.Op.ForInts).
const (
	poolOffset = 16
	intOffset  = 4
)

func (p *player) newPool(init trace.Op) (uint64, error) {
	size := uint64(init.Pool())
	if init.Large() {
		return p.newLargePool(init.Engine, size)
	}
	offset := uint64(poolOffset)
	if init.ForInts() {
		offset = intOffset
	}
	start := runner.Pools + p.used + offset
	p.used += (offset + size + 2*oracle.Slack + 4095) &^ 4095
	p.pools[init.Engine], p.ends[init.Engine] = start, 0
	oracle.Fill(p.subject.At(start, size+2*oracle.Slack))
	return start + oracle.Slack, nil
}

var calls = map[trace.Kind]runner.Call{trace.Init: runner.Init, trace.Create: runner.Create, trace.Fork: runner.Fork,
	trace.Append: runner.Append, trace.Free: runner.Free, trace.Destroy: runner.Destroy,
	trace.Forks: runner.Forks, trace.Creates: runner.Creates, trace.Appends: runner.Appends, trace.Frees: runner.Frees}

// returned compares the value returned by the call with the expected one. For a pointer it only checks whether it is
// NULL. The address of a new sequence is compared later, with the list.
func (p *player) returned(op trace.Op, want oracle.Outcome, got int64) *Difference {
	switch op.Kind {
	case trace.Init, trace.Create, trace.Fork:
		if want.Refused() != (got == 0) {
			return differs(Returned, "the returned pointer", pointer(!want.Refused()), pointer(got != 0))
		}
		if op.Kind == trace.Init && got != 0 {
			p.engines[op.Engine] = uint64(got)
			p.inited = true
		}
	case trace.Forks, trace.Creates, trace.Appends, trace.Frees:
		if got != want.Made {
			return differs(Returned, "the number of calls that succeed", want.Made, got)
		}
	default:
		expected := int64(0)
		if want.Refused() {
			expected = -1
		}
		if got != expected {
			return differs(Returned, "the returned value", expected, got)
		}
		if op.Kind == trace.Destroy && got == 0 {
			p.engines[op.Engine] = 0
		}
	}
	return nil
}

func pointer(valid bool) string {
	if valid {
		return "not NULL"
	}
	return "NULL"
}
