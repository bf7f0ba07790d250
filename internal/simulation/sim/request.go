package sim

import (
	"llmmemory/internal/scheduling/reqtable"
	"llmmemory/internal/simulation/workload"
)

// A request is a prompt with its answers. It has arrived and has not left yet. Schedulers without groups get several
// requests for a prompt, each with one answer; these form a group in the requestTable. The table reuses the memory of
// requests.
type request struct {
	prompt, output int
	seqs           int   // of this request
	index          int32 // of the prompt, in the order of arrival
	arrival        float64
	first          float64 // time of the first token
	generated      int     // tokens of each sequence
	session        int64   // 0 if no turn follows
	tokens         []int32

	// group is the index of the group's first request. The next three fields are used only in that request.
	group           int32
	members         int  // requests of the group that have not left
	membersResident int  // requests of the group that have memory
	dropped         bool // a request of the group was dropped

	resident bool // has memory
	length   int  // tokens of each sequence with keys and values in memory
}

// A requestTable has all requests and the totals of their memory.
type requestTable struct {
	server *Server
	kind   *System
	all    []request
	free   []int32
	live   int // prompts that are not answered

	// Totals over the requests with memory:
	requests, sequences int
	tokens              int // with keys and values; shared tokens count several times
	reserved            int // slots for tokens that will be generated
	neverUsed           int // reserved slots that will never be used
	emptySlots          int // in last blocks
}

// insert adds a request to a group, or to a new group if group is None, and returns its index.
func (l *requestTable) insert(r *workload.Request, seqs int, group int32) int32 {
	var i int32
	if n := len(l.free); n > 0 {
		i, l.free = l.free[n-1], l.free[:n-1]
	} else {
		i = int32(len(l.all))
		l.all = append(l.all, request{})
	}
	q := &l.all[i]
	*q = request{prompt: r.Prompt, output: r.Output, seqs: seqs, arrival: r.Arrival, session: r.Session,
		tokens: q.tokens[:0], group: group}
	if group == reqtable.None {
		q.group = i
		l.live++
	}
	l.all[q.group].members++
	return i
}

// remove removes the request at index i, and reports whether it was the last of its group. The entry of a group's first
// request has the fields of the group. remove therefore frees this entry together with the last request of the group.
func (l *requestTable) remove(i int32) bool {
	group := l.all[i].group
	l.setResident(&l.all[i], false)
	l.all[group].members--
	if i != group {
		l.free = append(l.free, i)
	}
	if l.all[group].members > 0 {
		return false
	}
	l.free = append(l.free, group)
	l.live--
	return true
}

// setResident records that a request has got or lost its memory.
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

func (l *requestTable) setLength(q *request, length int) {
	added := q.seqs * (length - q.length)
	l.tokens += added
	switch l.kind.Memory {
	case Reserved:
		l.reserved -= added
	case Paged:
		l.emptySlots += q.seqs * (l.empty(length) - l.empty(q.length))
	}
	q.length = length
}

func (l *requestTable) empty(length int) int {
	b := l.server.BlockSize
	if rest := length % b; rest > 0 {
		return b - rest
	}
	return 0
}

// count adds the memory of a request to the totals (sign 1), or subtracts it (sign -1).
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
