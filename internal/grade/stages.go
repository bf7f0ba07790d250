package grade

import (
	"slices"
	"time"
)

// stages are those that a submission has gone through so far.
type stages []Stage

// at is the stage of a name; nil if it has not begun.
func (s stages) at(name StageName) *Stage {
	if i := slices.IndexFunc(s, func(s Stage) bool { return s.Name == name }); i >= 0 {
		return &s[i]
	}
	return nil
}

// begin adds a stage. A task that has failed before is not looked at again, unless
// all stages are to be run: one mistake is one message.
func (s *stages) begin(name StageName, all bool) {
	stage := Stage{Name: name}
	for i := range stage.Tasks {
		stage.Tasks[i] = Passed
		for _, before := range *s {
			if before.Tasks[i] == Failed && !all && !name.always() {
				stage.Tasks[i] = NotRun
			}
		}
	}
	*s = append(*s, stage)
}

// always reports whether a stage looks at a task whatever was found before: what
// it sees is not what the others see.
func (n StageName) always() bool {
	return n == Directed || n == Memcheck || n == Sanitizers || n == Rules || n == Exhaustive
}

// end says how long the last stage took.
func (s stages) end(took time.Duration) { s[len(s)-1].Time = took }

// skip says that a stage could not be run for any task.
func (s stages) skip(name StageName) {
	stage := s.at(name)
	for i, status := range stage.Tasks {
		if status == Passed {
			stage.Tasks[i] = NotRun
		}
	}
}

// open reports whether a finding of a stage in a task is to be told.
func (s stages) open(name StageName, task int) bool {
	stage := s.at(name)
	return stage == nil || stage.Tasks[task-1] != NotRun
}

// fail notes a finding.
func (s stages) fail(name StageName, task int) { s.at(name).Tasks[task-1] = Failed }
