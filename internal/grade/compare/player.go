package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"llmmemory/internal/course"
	"llmmemory/internal/course/oracle"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/subject"
)

// patience is no measure of speed.
var patience = subject.Patience{Call: 2 * time.Second, Process: 10 * time.Second}

// patienceWith is longer where many children are made: for each, a list is walked.
func patienceWith(ops []trace.Op, times time.Duration) subject.Patience {
	p := subject.Patience{Call: patience.Call * times, Process: patience.Process * times}
	for _, op := range ops {
		if op.Kind == trace.Forks {
			walks := time.Duration(op.C) * time.Duration(op.C) * 10 * time.Nanosecond
			p.Call, p.Process = p.Call+walks, p.Process+walks
		}
	}
	return p
}

// A player holds both sides of a trace.
type player struct {
	expected *oracle.World
	subject  *subject.Process
	engines  [trace.Engines]uint64 // addresses, 0: none
	pools    [trace.Engines]uint64 // addresses of the slack before them
	used     uint64                // bytes of the pools' region
	chunks   map[uint64]uint64     // live ones: address to size
	open     bool                  // pools can be written in every call
	trouble  error                 // the grader's own
}

// Play runs a trace on a linked runner. The error is the grader's own trouble.
//
// A difference of the heap does not end a trace, one of the state does.
//
// No call but an append can write the pools (handout: only an actual append_kv
// may). A submission that dies is run again without that, to see what it wrote.
func Play(program string, ops []trace.Op) (Result, error) {
	r, err := play(program, ops, false, 1)
	if errors.Is(err, errPaused) { // the machine, or a call that waits for nothing
		r, err = play(program, ops, false, 5)
	}
	if errors.Is(err, errPaused) {
		err = nil
	}
	d := r.State
	if err != nil || d == nil || d.Channel != Death || d.Hangs || d.Op.Kind == trace.Append {
		return r, err
	}
	open, err := play(program, ops, true, 5)
	if errors.Is(err, errPaused) {
		err = nil
	}
	if err != nil || open.State != nil && open.State.Step <= d.Step {
		return open, err
	}
	wrote := differs(Pool, "the pool", "not written in this call", "written, with the bytes it had")
	wrote.Step, wrote.Op = d.Step, d.Op
	return Result{State: wrote, Heap: r.Heap}, nil
}

// errPaused is play's beside a difference: a call did not come back in its time,
// but did next to nothing in it.
var errPaused = errors.New("a pause")

// play waits as many times as long as usual.
func play(program string, ops []trace.Op, open bool, times time.Duration) (Result, error) {
	expected, err := oracle.New()
	if err != nil {
		return Result{}, err
	}
	defer expected.Close()
	process, err := subject.Start(program, patienceWith(ops, times))
	if errors.Is(err, subject.ErrStart) && len(ops) > 0 {
		d := differs(Death, "the program", "to start", err)
		d.Op = ops[0]
		return Result{State: d}, nil
	}
	if err != nil {
		return Result{}, err
	}
	defer process.Close()
	p := &player{expected: expected, subject: process, chunks: map[uint64]uint64{}, open: open}
	var r Result
	for i, op := range ops {
		d, heap := p.step(op)
		if p.trouble != nil {
			return Result{}, fmt.Errorf("step %d, %s: %w", i+1, op, p.trouble)
		}
		if heap != nil && r.Heap == nil {
			heap.Step, heap.Op = i, op
			r.Heap = heap
		}
		if d != nil {
			d.Step, d.Op = i, op
			r.State = d
			if d.Hangs && process.CPU() < patience.Call/4 {
				return r, errPaused
			}
			break
		}
	}
	return r, nil
}

// step makes one step on both sides and compares them.
func (p *player) step(op trace.Op) (state, heap *Difference) {
	if op.Kind.Outside() {
		return p.outside(op), nil
	}
	request := p.request(op)
	outcome := p.expected.Play(op)
	reply, err := p.subject.Do(request)
	if err != nil {
		return p.death(err), nil
	}
	heap = p.heap(outcome, reply.Events)
	return p.state(op, outcome, reply.Returned), heap
}

// state compares all but the heap.
func (p *player) state(op trace.Op, outcome oracle.Outcome, returned int64) *Difference {
	if d := p.returned(op, outcome, returned); d != nil {
		return d
	}
	for i := range p.engines {
		if d := p.engine(i); d != nil {
			return d
		}
	}
	if (op.Kind == trace.Create || op.Kind == trace.Fork) && returned != 0 && uint64(returned) != p.last(op.Engine) {
		return differs(Returned, "the returned pointer", "the new sequence, the last of the list", "another")
	}
	return nil
}

// death is the difference that an error of the process is, unless it is trouble
// of the grader's.
func (p *player) death(err error) *Difference {
	if !errors.Is(err, subject.ErrTime) && !errors.Is(err, subject.ErrDied) {
		p.trouble = err
	}
	d := differs(Death, "the call", "a return", err)
	d.Hangs = errors.Is(err, subject.ErrTime)
	return d
}

// last is the address of the last sequence of a list, which has been compared.
func (p *player) last(engine int) uint64 {
	return u64(p.subject.At(p.engines[engine]+activeOffset, 16), 0) - nodeOffset
}

// request is what the process is asked to do. Pools lie far enough apart that no
// byte is watched twice.
func (p *player) request(op trace.Op) subject.Request {
	r := subject.Request{Call: subject.Call(op.Kind), A: op.A, B: op.B, Fail: uint32(op.Fail)}
	if op.Kind != trace.Append && !p.open {
		r.Call |= subject.ReadOnly
	}
	if op.Kind == trace.Forks {
		r.Size = uint64(op.C)
	}
	if op.Kind != trace.Init {
		if op.Engine != trace.None {
			r.Engine = p.engines[op.Engine]
		}
		return r
	}
	r.Size = 10 * course.BlockSize
	if op.A >= 0 {
		r.Size = uint64(op.A)
		at := subject.Pools + p.used
		p.used += (r.Size + 2*oracle.Slack + 4095) &^ 4095
		p.pools[op.Engine] = at
		oracle.Fill(p.subject.At(at, r.Size+2*oracle.Slack))
		r.Engine = at + oracle.Slack
	}
	return r
}

// returned compares what the call returned, but for the address of a sequence:
// that is compared when the list has been.
func (p *player) returned(op trace.Op, want oracle.Outcome, got int64) *Difference {
	switch op.Kind {
	case trace.Init, trace.Create, trace.Fork:
		if want.Refused() != (got == 0) {
			return differs(Returned, "the returned pointer", pointer(!want.Refused()), pointer(got != 0))
		}
		if op.Kind == trace.Init && got != 0 {
			p.engines[op.Engine] = uint64(got)
		}
	case trace.Forks:
		if got != want.Made {
			return differs(Returned, "the number of children", want.Made, got)
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

func pointer(is bool) string {
	if is {
		return "not NULL"
	}
	return "NULL"
}

// edges looks at the bytes behind each live allocation, which belong to nobody.
func (p *player) edges() *Difference {
	for _, at := range slices.Sorted(maps.Keys(p.chunks)) {
		size := p.chunks[at]
		room := (size+15)/16*16 + 16 // as get of grader/process/runner.c
		for i, b := range p.subject.At(at+size, room-size) {
			if b != edge {
				return differs(Heap, fmt.Sprintf("byte %d behind an allocation of %d bytes", i+1, size), "not written", fmt.Sprintf("%#02x", b))
			}
		}
	}
	return nil
}

// edge fills what lies between two allocations.
const edge = 0xfd

// mostAllocations is far more than any call can have a use for, and few enough
// for the grader to keep account of.
const mostAllocations = 1 << 16

// heap compares what a call did to the heap.
func (p *player) heap(want oracle.Outcome, events []subject.Event) *Difference {
	if d := p.account(want, events); d != nil {
		return d
	}
	if d := p.edges(); d != nil {
		return d
	}
	if live := p.expected.Live(); len(p.chunks) != live {
		return differs(Heap, "the number of live allocations", live, len(p.chunks))
	}
	return nil
}

// account keeps the live chunks.
func (p *player) account(want oracle.Outcome, events []subject.Event) (d *Difference) {
	allocations := 0
	for _, e := range events {
		if e.What != subject.Release {
			allocations++
		}
		if allocations > mostAllocations+18*int(want.Made) {
			return differs(Heap, "the allocations of one call", "at most 18", fmt.Sprintf("more than %d", mostAllocations))
		}
		switch e.What {
		case subject.Release:
			delete(p.chunks, e.At)
		case subject.BadRelease:
			what := "an address that is no allocation"
			if e.Size != 0 {
				what = "an allocation that was freed already"
			}
			d = cmp.Or(d, differs(Heap, "what is freed", "a live allocation", what))
		case subject.Malloc, subject.Calloc, subject.Realloc:
			p.chunks[e.At] = e.Size
			fallthrough
		default:
			if want.Refused() && !want.OutOfMemory() {
				d = cmp.Or(d, differs(Heap, Allocates, "none", fmt.Sprintf("%d bytes", e.Size)))
			}
		}
	}
	return d
}
