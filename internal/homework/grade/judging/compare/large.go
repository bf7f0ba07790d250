package compare

import (
	"errors"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/runner"
)

const page = 4096

// ErrMemory is wrapped if a submission dies while the machine has too little memory left. The submission is
// then not to blame.
var ErrMemory = errors.New("the machine has too little memory left, of which the ref_count of a pool of 3 GiB takes most")

// maxForLarge is the memory that a submission may use for the reference counts of a large pool.
const maxForLarge = 400 << 20

// newLargePool returns the address of a new pool of which only the two ends can be touched. Both ends are
// consecutive pages in the region of the pools. The second end is also mapped at the address where the pool
// ends.
func (p *player) newLargePool(engine int, size uint64) (uint64, error) {
	at := runner.Pools + p.used + poolOffset
	high := at + oracle.Slack + size - trace.End // where the second end has to be
	mapped := (high%page + trace.End + oracle.Slack + page - 1) &^ (page - 1)
	p.used += (poolOffset + oracle.Slack + trace.End + page - 1) &^ (page - 1)
	from := runner.Pools + p.used
	p.used += mapped
	if _, err := p.subject.Do(runner.Request{Call: runner.Open, Engine: at, Size: trace.End}); err != nil {
		return 0, err
	}
	if err := p.subject.Alias(from, high&^(page-1), mapped); err != nil {
		return 0, err
	}
	p.pools[engine], p.ends[engine] = at, high
	oracle.Fill(p.subject.At(at, oracle.Slack+trace.End))
	oracle.Fill(p.subject.At(high, trace.End+oracle.Slack))
	return at + oracle.Slack, nil
}

// reserved reports whether the oracle has reserved its large pool. If it has not, that is an error of the grader.
func (p *player) reserved(op trace.Op) bool {
	if op.Large() && p.expected.Engines[op.Engine] == nil {
		p.trouble = oracle.ErrReserve
	}
	return p.trouble == nil
}

func (p *player) isLarge(engine int) bool { return p.expected.Ends[engine][0] != nil }

func hasLarge(ops []trace.Op) bool { return slices.ContainsFunc(ops, trace.Op.Large) }

const maxCounts = 1 << 20

func looked(total int32) [][2]int32 {
	if total <= 2*maxCounts {
		return [][2]int32{{0, total}}
	}
	const some = trace.End / course.BlockSize
	return [][2]int32{{0, some}, {total - some, total}}
}
