package sim

import (
	"llmmemory/internal/paper"
	"llmmemory/internal/queue"
	"llmmemory/internal/sim/workload"
)

// A request is one that has arrived and is not answered, in a place that is used
// again. Where the scheduler takes one sequence at a time there is one for each
// answer, and family names the first of them.
type request struct {
	prompt, output int
	seqs           int   // of this request
	index          int32 // of the prompt, in the order of arrival
	arrival        float64
	first          float64 // time of the first token
	generated      int     // tokens of each sequence
	tokens         []int32

	family  int32 // place of the request that stands for all answers to the prompt
	members int   // of the family that have not left; of that request only
	here    int   // of the family that have memory; of that request only
	dropped bool  // one of the family was dropped; of that request only

	resident bool // has memory
	length   int  // tokens of each sequence with keys and values in memory
}

// A roll is all requests and what they have in memory together.
type roll struct {
	server *Server
	policy paper.Policy
	orca   bool
	paged  bool
	all    []request
	spare  []int32
	live   int // prompts that are not answered

	// Of those with memory:
	requests, sequences int
	tokens              int // with keys and values; for the paged ones with sharing ignored
	coming              int // tokens that are going to be
	never               int // slots that were reserved and never will be used
	ragged              int // empty slots in last blocks
}

// arrive takes a place for one request of a family; family None begins one.
func (l *roll) arrive(r *workload.Request, seqs int, family int32) int32 {
	var at int32
	if n := len(l.spare); n > 0 {
		at, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		at = int32(len(l.all))
		l.all = append(l.all, request{})
	}
	q := &l.all[at]
	*q = request{prompt: r.Prompt, output: r.Output, seqs: seqs, arrival: r.Arrival, tokens: q.tokens[:0], family: family}
	if family == queue.None {
		q.family = at
		l.live++
	}
	l.all[q.family].members++
	return at
}

// leave takes a request out, and reports whether it was the last one of its
// family. The place of the first one stays until then.
func (l *roll) leave(at int32) bool {
	family := l.all[at].family
	l.setResident(&l.all[at], false)
	l.all[family].members--
	if at != family {
		l.spare = append(l.spare, at)
	}
	if l.all[family].members > 0 {
		return false
	}
	l.spare = append(l.spare, family)
	l.live--
	return true
}

// setResident notes that a request has got or lost its memory.
func (l *roll) setResident(q *request, resident bool) {
	if q.resident == resident {
		return
	}
	if resident {
		q.resident = true
		l.count(q, 1)
		f := &l.all[q.family]
		if f.here++; f.here == 1 {
			l.requests++
		}
		return
	}
	l.count(q, -1)
	q.resident, q.length = false, 0
	f := &l.all[q.family]
	if f.here--; f.here == 0 {
		l.requests--
	}
}

// setLength notes how many tokens a request with memory has there.
func (l *roll) setLength(q *request, length int) {
	l.count(q, -1)
	q.length = length
	l.count(q, 1)
}

// count adds what a request has in memory, or takes it away.
func (l *roll) count(q *request, sign int) {
	n := sign * q.seqs
	l.sequences += n
	l.tokens += n * q.length
	switch {
	case l.orca:
		whole := q.prompt + q.output
		l.coming += n * (whole - q.length)
		l.never += n * (l.policy.Tokens(q.prompt, q.output, l.server.MaxLen) - whole)
	case l.paged:
		if b := l.server.BlockSize; q.length%b > 0 {
			l.ragged += n * (b - q.length%b)
		}
	}
}
