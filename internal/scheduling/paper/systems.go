package paper

import (
	"fmt"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

// NewSOSP returns a scheduler of the paper's own system. It preempts requests with one running sequence by
// recomputation, unless alwaysSwap is true, and other requests by swapping.
func NewSOSP(config Config, limits Limits, alwaysSwap bool) (*Scheduler, error) {
	m, err := NewManager(config)
	if err != nil {
		return nil, err
	}
	s, err := newScheduler(limits, &paged{m, alwaysSwap})
	if err == nil {
		s.cached = m.prefixTokens()
	}
	return s, err
}

// NewOrca returns a scheduler of Orca. It never preempts a request, because it reserves all memory of a request at
// admission.
func NewOrca(config OrcaConfig, limits Limits) (*Scheduler, error) {
	r, err := NewReservation(config)
	if err != nil {
		return nil, err
	}
	return newScheduler(limits, &reserved{r})
}

// paged is the paper's memory.
type paged struct {
	*Manager
	alwaysSwap bool
}

func (p *paged) accept(q *request) error {
	if q.length() <= p.prefixTokens() {
		return fmt.Errorf("a prompt of %d tokens has nothing after the prefix of %d", q.length(), p.prefixTokens())
	}
	if !p.possible(q) {
		return fmt.Errorf("a prompt of %d tokens can never be admitted to %d blocks", q.length(), p.config.NumGPUBlocks)
	}
	return nil
}

func (p *paged) possible(q *request) bool {
	return p.config.NumGPUBlocks-p.blocks(q.length()) >= p.watermark
}

func (p *paged) canAdmit(q *request) bool  { return p.CanAllocate(q.length()) }
func (p *paged) admit(q *request) error    { return p.Allocate(&q.Group) }
func (p *paged) canAppend(q *request) bool { return p.CanAppend(&q.Group) }
func (p *paged) canSwapIn(q *request) bool { return p.CanSwapIn(&q.Group) }

func (p *paged) canEverSwapIn(q *request) bool {
	return p.config.NumGPUBlocks-len(p.prefix)-(p.distinct(&q.Group)+q.running()) >= p.watermark
}

func (p *paged) append(it *serve.Iteration, q *request) error {
	for i := range q.Seqs {
		pair, copied, err := p.Append(&q.Group, i)
		if err != nil {
			return err
		}
		if copied {
			it.Copies = append(it.Copies, pair)
		}
	}
	return nil
}

func (p *paged) swapIn(it *serve.Iteration, q *request) (err error) {
	it.SwapIn, err = p.SwapIn(it.SwapIn, &q.Group)
	return err
}

func (p *paged) preempt(it *serve.Iteration, q *request) (swapped bool, err error) {
	if p.alwaysSwap || q.running() > 1 {
		if it.SwapOut, err = p.SwapOut(it.SwapOut, &q.Group); err != nil {
			err = fmt.Errorf("it cannot be swapped out, give the CPU more than %d blocks: %w", p.config.NumCPUBlocks, err)
		}
		return true, err
	}
	for i := range q.Seqs {
		p.Free(&q.Group, i)
	}
	return false, nil
}

func (p *paged) free(q *request, sequence int) { p.Free(&q.Group, sequence) }

func (p *paged) refork(_ *serve.Iteration, q *request, child, parent int) error {
	return p.Refork(&q.Group, child, parent)
}

func (p *paged) table(q *request, sequence int) []int32 { return q.Seqs[sequence].table }

func (p *paged) counts() (gpu, cpu []int32) { return p.gpu.Counts(), p.cpu.Counts() }

func (p *paged) usage() serve.Usage {
	return serve.Usage{Blocks: p.config.NumGPUBlocks, Used: p.config.NumGPUBlocks - p.gpu.NumFree(), Logical: p.logical}
}

func (p *paged) check(s *Scheduler) error {
	for index := range s.waiting.All() {
		if q := s.requests.At(index); len(q.Seqs[0].table) > 0 {
			return invariants.Broken("request %d waits with %d blocks", q.id, len(q.Seqs[0].table))
		}
	}
	return p.Check(func(yield func(*Group) bool) {
		for _, index := range s.requests.All() {
			if !s.waiting.Has(index) && !yield(&s.requests.At(index).Group) {
				return
			}
		}
	})
}

// reserved is Orca's memory.
type reserved struct{ *Reservation }

func (r *reserved) accept(q *request) error {
	switch {
	case q.output < 1:
		return fmt.Errorf("an output of %d tokens: want at least 1, because Orca reserves memory for it", q.output)
	case q.prompt+q.output > r.config.MaxModelLen:
		return fmt.Errorf("%d and %d tokens: no sequence has more than %d", q.prompt, q.output, r.config.MaxModelLen)
	case !r.possible(q):
		return fmt.Errorf("%d chunks of %d blocks are more than %d blocks have", len(q.Seqs), 1<<order(r.Blocks(q.prompt, q.output)), r.config.NumGPUBlocks)
	}
	return nil
}

// possible reports whether an empty memory has a chunk for each sequence of q. An empty memory of n blocks has n/2^k
// chunks of 2^k blocks, rounded down (see newBuddy).
func (r *reserved) possible(q *request) bool {
	return r.config.NumGPUBlocks>>order(r.Blocks(q.prompt, q.output)) >= q.running()
}

func (r *reserved) canAdmit(q *request) bool { return r.Fits(q.prompt, q.output, q.running()) }

func (r *reserved) admit(q *request) (err error) {
	q.chunks, err = r.Reserve(q.chunks[:0], q.prompt, q.output, len(q.Seqs))
	return err
}

func (r *reserved) free(q *request, sequence int) {
	if len(q.chunks) > 0 {
		r.Free(q.chunks[sequence])
	}
}

// refork copies the parent's blocks, because chunks cannot be shared.
func (r *reserved) refork(it *serve.Iteration, q *request, child, parent int) error {
	if child == parent || len(q.chunks) == 0 {
		return fmt.Errorf("%w: sequence %d cannot become a copy of %d", ErrGroup, child, parent)
	}
	q.Seqs[child].Len = q.Seqs[parent].Len
	blocks := (q.Seqs[parent].Len - 2 + r.config.BlockSize) / r.config.BlockSize // the last token is not in a block yet
	for i := range int32(blocks) {
		it.Copies = append(it.Copies, device.Pair{Src: q.chunks[parent].Start + i, Dst: q.chunks[child].Start + i})
	}
	return nil
}

func (r *reserved) table(q *request, sequence int) []int32 {
	if len(q.chunks) == 0 {
		return nil
	}
	c := q.chunks[sequence]
	ids := make([]int32, c.Size)
	for i := range ids {
		ids[i] = c.Start + int32(i)
	}
	return ids
}

func (r *reserved) counts() (gpu, cpu []int32) { return nil, nil }

func (r *reserved) usage() serve.Usage {
	return serve.Usage{Blocks: r.config.NumGPUBlocks, Used: r.used, Logical: r.used}
}

func (r *reserved) check(s *Scheduler) error {
	used := 0
	for index := range s.running.All() {
		for _, c := range s.requests.At(index).chunks {
			used += int(c.Size)
		}
	}
	if used != r.used || used+r.buddy.free != r.config.NumGPUBlocks {
		return invariants.Broken("%d blocks are reserved, but %d are counted; %d are free of %d", used, r.used, r.buddy.free, r.config.NumGPUBlocks)
	}
	return r.buddy.Check()
}
