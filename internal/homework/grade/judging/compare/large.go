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

// ErrMemory means that a submission died while the machine had too little memory left. The submission loses no points
// for this.
var ErrMemory = errors.New("the machine has too little memory left, of which the ref_count of a pool of 3 GiB takes most")

// memoryForLarge is a number of available bytes. If a submission with a large pool dies and fewer are left, Play returns
// ErrMemory. The reference counts of a pool of 3 GiB take about half of them.
const memoryForLarge = 400 << 20

// newLargePool maps a large pool and returns its address. The submission can access only two parts of the pool: its
// first trace.End bytes with the slack before them, and its last trace.End bytes with the slack after them. The memory
// of both parts is in the region of the pools, where the second part follows the first. The second part is mapped once
// more, at the address that it has in the pool.
func (p *player) newLargePool(engine int, size uint64) (uint64, error) {
	start := runner.Pools + p.used + poolOffset
	high := start + oracle.Slack + size - trace.End // where the second end has to be
	mapped := (high%page + trace.End + oracle.Slack + page - 1) &^ (page - 1)
	p.used += (poolOffset + oracle.Slack + trace.End + page - 1) &^ (page - 1)
	alias := runner.Pools + p.used
	p.used += mapped
	if _, err := p.subject.Do(runner.Request{Call: runner.Open, Engine: start, Size: trace.End}); err != nil {
		return 0, err
	}
	if err := p.subject.Alias(alias, high&^(page-1), mapped); err != nil {
		return 0, err
	}
	p.pools[engine], p.ends[engine] = start, high
	oracle.Fill(p.subject.At(start, oracle.Slack+trace.End))
	oracle.Fill(p.subject.At(high, trace.End+oracle.Slack))
	return start + oracle.Slack, nil
}

// reserved returns false if the grader cannot continue. In particular, if the oracle could not reserve the memory of
// a large pool, reserved sets trouble and returns false.
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
