package grade

import (
	"slices"
	"time"
)

type stages []Stage

// find returns the stage with a name, or nil if that stage has not begun.
func (s stages) find(name StageName) *Stage {
	if i := slices.IndexFunc(s, func(s Stage) bool { return s.Name == name }); i >= 0 {
		return &s[i]
	}
	return nil
}

// begin adds a stage. Unless all is set, the stage skips the tasks in which an earlier stage has found a mistake. So no
// mistake is reported twice.
func (s *stages) begin(name StageName, all bool) {
	stage := Stage{Name: name}
	for i := range stage.Tasks {
		stage.Tasks[i] = Passed
		for _, before := range *s {
			if before.Tasks[i] == Failed && !all && !name.neverSkips() {
				stage.Tasks[i] = NotRun
			}
		}
	}
	*s = append(*s, stage)
}

// neverSkips reports whether a stage is run for every task, even if an earlier stage has found a mistake in the task.
// Such a stage finds mistakes that no other stage finds.
func (n StageName) neverSkips() bool {
	return n == Directed || n == Memcheck || n == Sanitizers || n == Rules
}

func (s stages) end(took time.Duration) { s[len(s)-1].Time = took }

// skip marks a stage as not run for all tasks, except those that have failed it.
func (s stages) skip(name StageName) {
	for task := 1; task <= Tasks; task++ {
		s.drop(name, task)
	}
}

// drop marks a stage as not run for a task, unless the task has failed the stage.
func (s stages) drop(name StageName, task int) {
	if status := &s.find(name).Tasks[task-1]; *status == Passed {
		*status = NotRun
	}
}

// open reports whether findings of a stage may be reported for a task. It returns false if the stage skips the task.
func (s stages) open(name StageName, task int) bool {
	stage := s.find(name)
	return stage == nil || stage.Tasks[task-1] != NotRun
}

func (s stages) fail(name StageName, task int) { s.find(name).Tasks[task-1] = Failed }
