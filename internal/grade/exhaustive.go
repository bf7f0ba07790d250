package grade

import (
	"slices"

	"llmmemory/internal/course/exhaustive"
	"llmmemory/internal/course/handout"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
)

const (
	exhaustiveCalls  = 5    // in a sequence
	exhaustiveBlocks = 3    // in a pool
	exhaustiveSteps  = 2000 // for one process
)

// exhaustively plays every short sequence of calls (package exhaustive), the shortest first,
// until one shows a difference. No points depend on it.
func (g *grading) exhaustively() error {
	for blocks := 1; blocks <= exhaustiveBlocks; blocks++ {
		var ops []trace.Op
		for c := range exhaustive.Small(blocks, [3]int32{1, -1, 0}, exhaustiveCalls).Cases() {
			ops = append(ops, slices.Concat(uses(c)...)...)
			if len(ops) < exhaustiveSteps {
				continue
			}
			if found, err := g.firstOf(ops); found || err != nil {
				return err
			}
			ops = ops[:0]
		}
		if found, err := g.firstOf(ops); found || err != nil {
			return err
		}
	}
	return nil
}

// uses are the traces of a case: its path followed by all refused calls, and its path followed
// by each call that changes something. No allocation fails in them.
func uses(c exhaustive.Case) (all [][]trace.Op) {
	refused := slices.DeleteFunc(slices.Clone(c.Refused), func(op trace.Op) bool { return op.Fail > 0 })
	if len(refused) > 0 {
		all = append(all, append(slices.Clone(c.Path), refused...))
	}
	for _, op := range c.Changes {
		if op.Fail == 0 {
			all = append(all, append(slices.Clone(c.Path), op))
		}
	}
	for i, ops := range all {
		if ops[len(ops)-1].Kind != trace.Destroy {
			all[i] = append(ops, trace.Op{Kind: trace.Destroy})
		}
	}
	return all
}

// firstOf plays traces one after the other and adds a finding for the first difference, with its
// own trace alone where that shows the difference too.
func (g *grading) firstOf(ops []trace.Op) (found bool, err error) {
	r, err := g.play(ops)
	d := r.First()
	if d == nil || err != nil {
		return false, err
	}
	from := d.Step
	for ops[from].Kind != trace.Init {
		from--
	}
	alone, err := g.play(ops[from : d.Step+1])
	if err != nil {
		return true, err
	}
	if like := like(alone, d, false); like != nil {
		ops, d = ops[from:], like
	}
	f, err := g.shown("exhaustive", Exhaustive, slices.Clone(ops), d)
	if err == nil {
		g.found("", f)
	}
	return true, err
}

// shown returns the finding of a difference, with its scene.
func (g *grading) shown(name string, stage StageName, ops []trace.Op, d *compare.Difference) (Finding, error) {
	f := Finding{Name: name, Task: d.Op.Task(), Stage: stage, Sentence: sentence(d, handout.WhiteBox), Ops: ops[:d.Step+1], Difference: d}
	var err error
	f.Scene, err = compare.Look(g.program.Native(), f.Ops, d)
	return f, err
}
