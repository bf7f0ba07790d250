package page

import (
	"slices"

	"llmmemory/internal/grade"
)

// A kind is why a submission was not run.
type kind string

// The kinds, those that staff should see first before the others.
const (
	attack  kind = "refused"
	trouble kind = "could not be graded"
	broke   kind = "does not compile"
	noFile  kind = "nothing to grade"
)

func kindOf(s grade.StageName) kind {
	switch s {
	case grade.NoFile:
		return noFile
	case grade.Compile:
		return broke
	default:
		return attack
	}
}

// A flag is the submissions that were not run for one kind of reason.
type flag struct {
	Kind  kind
	Title string
	What  string
	Rows  []row
}

// Urgent reports whether staff have to do something.
func (f flag) Urgent() bool { return f.Kind == attack || f.Kind == trouble }

var flags = []flag{
	{Kind: attack, Title: "Refused: attacks, or what looks like one", What: "The file has what the gate refuses because it can attack the grader or hide from it. Read it before you decide."},
	{Kind: trouble, Title: "Could not be graded", What: "This is the grader's trouble, not the student's. The next run tries again."},
	{Kind: broke, Title: "Does not compile", What: "The compiler refuses the file with the flags of the course."},
	{Kind: noFile, Title: "Nothing to grade", What: "There is no C file that could be graded."},
}

// flagged are the kinds that there are, in the order in which staff should look.
func flagged(rows []row) []flag {
	var all []flag
	for _, f := range flags {
		f.Rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Kind != f.Kind })
		if len(f.Rows) > 0 {
			all = append(all, f)
		}
	}
	return all
}
