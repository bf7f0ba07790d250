package sim

import (
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/simulation/workload"
)

// A request is one that has arrived and is not answered, in a place that is used
// again. Where the scheduler takes one sequence at a time there is one for each
// answer, and group names the first of them.
type request struct {
	prompt, output int
	seqs           int   // of this request
	index          int32 // of the prompt, in the order of arrival
	arrival        float64
	first          float64 // time of the first token
	generated      int     // tokens of each sequence
	session        int64   // of a turn; 0: none follows
	tokens         []int32

	group           int32 // place of the request that stands for all answers to the prompt
	members         int   // of the group that have not left; of that request only
	membersResident int   // of the group that have memory; of that request only
	dropped         bool  // one of the group was dropped; of that request only

	resident bool // has memory
	length   int  // tokens of each sequence with keys and values in memory
}

// A requestTable is all requests and what they have in memory together.
type requestTable struct {
	server *Server
	kind   *System
	all    []request
	free   []int32
	live   int // prompts that are not answered

	// Of those with memory:
	requests, sequences int
	tokens              int // with keys and values; for the paged ones with sharing ignored
	reserved            int // tokens that are going to be
	neverUsed           int // slots that were reserved and never will be used
	emptySlots          int // empty slots in last blocks
}

// insert takes a place for one request of a group; group None begins one.
func (l *requestTable) insert(r *workload.Request, seqs int, group int32) int32 {
	var at int32
	if n := len(l.free); n > 0 {
		at, l.free = l.free[n-1], l.free[:n-1]
	} else {
		at = int32(len(l.all))
		l.all = append(l.all, request{})
	}
	q := &l.all[at]
	*q = request{prompt: r.Prompt, output: r.Output, seqs: seqs, arrival: r.Arrival, session: r.Session,
		tokens: q.tokens[:0], group: group}
	if group == reqtable.None {
		q.group = at
		l.live++
	}
	l.all[q.group].members++
	return at
}

// remove takes a request out, and reports whether it was the last one of its
// group. The place of the first one stays until then.
func (l *requestTable) remove(at int32) bool {
	group := l.all[at].group
	l.setResident(&l.all[at], false)
	l.all[group].members--
	if at != group {
		l.free = append(l.free, at)
	}
	if l.all[group].members > 0 {
		return false
	}
	l.free = append(l.free, group)
	l.live--
	return true
}

// setResident notes that a request has got or lost its memory.
func (l *requestTable) setResident(q *request, resident bool) {
	if q.resident == resident {
		return
	}
	if resident {
		q.resident = true
		l.count(q, 1)
		f := &l.all[q.group]
		if f.membersResident++; f.membersResident == 1 {
			l.requests++
		}
		return
	}
	l.count(q, -1)
	q.resident, q.length = false, 0
	f := &l.all[q.group]
	if f.membersResident--; f.membersResident == 0 {
		l.requests--
	}
}

// setLength notes how many tokens a request with memory has there.
func (l *requestTable) setLength(q *request, length int) {
	more := q.seqs * (length - q.length)
	l.tokens += more
	switch l.kind.Memory {
	case Reserved:
		l.reserved -= more
	case Paged:
		l.emptySlots += q.seqs * (l.empty(length) - l.empty(q.length))
	}
	q.length = length
}

// empty returns the slots that a sequence leaves empty in its last block.
func (l *requestTable) empty(length int) int {
	b := l.server.BlockSize
	if over := length % b; over > 0 {
		return b - over
	}
	return 0
}

// count adds what a request has in memory, or takes it away.
func (l *requestTable) count(q *request, sign int) {
	n := sign * q.seqs
	l.sequences += n
	l.tokens += n * q.length
	switch l.kind.Memory {
	case Reserved:
		whole := q.prompt + q.output
		l.reserved += n * (whole - q.length)
		l.neverUsed += n * (l.kind.policy.Tokens(q.prompt, q.output, l.server.MaxModelLen) - whole)
	case Paged:
		l.emptySlots += n * l.empty(q.length)
	}
}
