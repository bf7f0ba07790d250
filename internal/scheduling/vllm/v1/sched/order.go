package sched

import "cmp"

// An order implements a Policy. It decides the order of two waiting requests, and selects the running request to
// preempt first. To add a policy, add a row to orders.
type order struct {
	// less reports whether r must be admitted before o. If less is nil, or returns false for (r, o) and for (o, r),
	// preempted and skipped requests come first, and then the request that was added first.
	less func(r, o *request) bool

	// victim returns an index in s.running. The request with this index is preempted if too few blocks are free.
	victim func(s *Scheduler) int
}

var orders = [...]order{
	FCFS:     {victim: lastAdmitted},
	Priority: {less: moreImportant, victim: leastImportant},
}

func (o *order) precedes(r, other *request) bool { return o.less != nil && o.less(r, other) }

func (o *order) compare(r, other *request) int {
	switch {
	case o.precedes(r, other):
		return -1
	case o.precedes(other, r):
		return 1
	}
	return 0
}

func lastAdmitted(s *Scheduler) int { return len(s.running) - 1 }

// moreImportant reports whether r is more important than o: by priority, then arrival, then name
// (vllm/v1/RULES.md §14), then the order of Add.
func moreImportant(r, o *request) bool {
	return cmp.Or(
		cmp.Compare(r.priority, o.priority), cmp.Compare(r.arrival, o.arrival),
		cmp.Compare(r.name, o.name), cmp.Compare(r.seq, o.seq),
	) < 0
}

// leastImportant returns the index of the running request that would be admitted last. So the most important request is
// preempted only if no other runs. vLLM looks only at priority and arrival: of the requests with the lowest priority
// and the latest arrival, it preempts the first in the list.
func leastImportant(s *Scheduler) int {
	worst := 0
	for i, r := range s.running {
		w := s.running[worst]
		if r.priority > w.priority || r.priority == w.priority && r.arrival > w.arrival ||
			s.differs.victims && moreImportant(w, r) {
			worst = i
		}
	}
	return worst
}
