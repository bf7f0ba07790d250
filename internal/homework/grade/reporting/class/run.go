// Package class grades many submissions. It finds them, grades several at a time, and stores their reports in a
// folder. The next run uses the stored reports, so that an interrupted run can be continued. The package also merges
// the folders of several machines.
package class

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"

	"llmmemory/internal/homework/grade"
)

// A Result is the outcome for one submission: a Report, or an Err if the grader failed or the run was interrupted.
type Result struct {
	Submission
	Report   *grade.Report
	Err      error
	Rules    string    // version of the rules if there is no Report
	Override *Override // decision of staff, or nil
	Same     []string  // names of others with the same text (Identical)
}

// ErrPending is wrapped by the Err of a submission that an interrupted run has not graded.
var ErrPending = errors.New("not graded yet")

// Score returns the final points: those that staff gave, otherwise those of the grader. known is false if there are
// neither.
func (r *Result) Score() (points float64, known bool) {
	switch {
	case r.Override != nil && r.Override.Points != nil:
		return *r.Override.Points, true
	case r.Report != nil:
		return r.Report.Score, true
	}
	return 0, false
}

// Identical sets the field Same of each result to the students whose source is the same, apart from white space.
func Identical(all []Result) {
	names := map[string][]string{}
	for i := range all {
		if r := all[i].Report; r != nil && r.Source != "" {
			names[r.Source] = append(names[r.Source], all[i].Name)
		}
	}
	for i := range all {
		all[i].Same = nil
		if r := all[i].Report; r != nil {
			all[i].Same = slices.DeleteFunc(slices.Clone(names[r.Source]), func(name string) bool { return name == all[i].Name })
		}
	}
}

// Run grades the submissions, at most jobs at a time, and yields the results in order. rules is the version of the
// rules. When ctx is done, Run starts no further submission; the results of the remaining ones have the error of ctx.
func Run(ctx context.Context, all []Submission, jobs int, rules string, grader func(Submission) (*grade.Report, error)) iter.Seq[Result] {
	done := make([]chan Result, len(all))
	for i := range done {
		done[i] = make(chan Result, 1)
	}
	var next atomic.Int64
	for range min(max(1, jobs), len(all)) {
		go func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				r := Result{Submission: all[i], Err: ctx.Err(), Rules: rules}
				if r.Err == nil {
					r.Report, r.Err = grader(all[i])
				}
				done[i] <- r
			}
		}()
	}
	return func(yield func(Result) bool) {
		for _, c := range done {
			if !yield(<-c) {
				return
			}
		}
	}
}
