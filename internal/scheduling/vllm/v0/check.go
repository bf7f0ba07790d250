package v0

import (
	"fmt"
	"iter"

	"llmmemory/internal/block"
	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/reqtable"
)

// Check returns an error if the state of the manager is inconsistent. Each block of both devices must be free,
// evictable, or in as many table entries as its count says. Each table must have blocks for all tokens recorded in it.
// The key of each cached block must find the block. seqs yields every sequence of the manager.
func (m *Manager) Check(seqs iter.Seq[*Seq]) error {
	entries := func(d *device.Device) iter.Seq[int32] {
		return func(yield func(int32) bool) {
			if d == &m.gpu && m.null != block.None && !yield(m.null) {
				return
			}
			for s := range seqs {
				for _, id := range s.table {
					if m.deviceOf(s) == d && id != m.null && !yield(id) {
						return
					}
				}
			}
		}
	}
	kept := 0
	if m.prefix != nil {
		kept = m.prefix.evictor.Len()
	}
	if err := m.gpu.Check(kept, entries(&m.gpu)); err != nil {
		return fmt.Errorf("GPU: %w", err)
	}
	if err := m.cpu.Check(0, entries(&m.cpu)); err != nil {
		return fmt.Errorf("CPU: %w", err)
	}
	logical := 0
	for s := range seqs {
		if m.deviceOf(s) == &m.gpu {
			logical += len(s.table)
		}
		if err := m.checkSeq(s); err != nil {
			return err
		}
	}
	if logical != m.logical {
		return invariants.Broken("%d table entries are on the GPU, but %d are counted", logical, m.logical)
	}
	if m.prefix != nil {
		return m.checkPrefix()
	}
	return nil
}

func (m *Manager) checkSeq(s *Seq) error {
	size := m.config.BlockSize
	if s.full > s.Len || s.full > len(s.table)*size || !s.known && len(s.table) > 0 {
		return invariants.Broken("a sequence of %d tokens, known: %t, has %d of them in %d blocks", s.Len, s.known, s.full, len(s.table))
	}
	named := map[int32]bool{}
	for i, id := range s.table {
		if id == m.null {
			if !s.moved {
				return invariants.Broken("entry %d of a table is the null block, but its window has not moved", i)
			}
			continue
		}
		if named[id] {
			return invariants.Broken("block %d is in two places of a table", id)
		}
		named[id] = true
	}
	if m.prefix == nil {
		return nil
	}
	i := 0
	var err error
	m.walkKeys(s, 0, s.full, blockhash.Hash{}, func(key *blockhash.Hash) bool {
		b := &m.prefix.blocks[s.table[i]]
		if b.tokens != (i+1)*size || b.key != *key {
			err = invariants.Broken("full block %d, entry %d of a table, has a key for %d tokens, or of another prefix", s.table[i], i, b.tokens)
		}
		i++
		return err == nil
	})
	return err
}

func (m *Manager) checkPrefix() error {
	p := m.prefix
	n := 0
	prev := reqtable.None
	for id := range p.evictor.All() {
		b := &p.blocks[id]
		if n++; n > m.config.NumGPUBlocks || m.gpu.Count(id) != 0 || b.tokens == 0 || p.evictor.Prev(id) != prev {
			return invariants.Broken("block %d is evictable with the count %d and a prefix of %d tokens, after %d", id, m.gpu.Count(id), b.tokens, p.evictor.Prev(id))
		}
		prev = id
	}
	if n != p.evictor.Len() {
		return invariants.Broken("%d blocks are evictable, but %d are counted", n, p.evictor.Len())
	}
	for id := range m.gpu.Free() {
		if p.blocks[id].tokens != 0 {
			return invariants.Broken("block %d is unused, but holds a prefix of %d tokens", id, p.blocks[id].tokens)
		}
	}
	keyed := 0
	for id := range p.blocks {
		b := &p.blocks[id]
		if b.tokens == 0 {
			continue
		}
		keyed++
		if found, ok := p.cached[b.key]; !ok || int(found) != id {
			return invariants.Broken("block %d is cached, but its key finds %d (%t)", id, found, ok)
		}
	}
	if keyed != len(p.cached) {
		return invariants.Broken("%d blocks hold prefixes, %d keys are cached", keyed, len(p.cached))
	}
	return nil
}

// Check returns an error if the manager's state is inconsistent or a request is not in exactly one queue. Running
// requests must have their blocks on the GPU, swapped requests must have theirs on the CPU, and waiting requests must
// have none. Each table must have blocks for the computed tokens.
func (s *Scheduler) Check() error {
	if err := s.manager.Check(s.seqs()); err != nil {
		return err
	}
	if n := s.waiting.Len() + s.running.Len() + s.swapped.Len(); n != s.requests.Len() {
		return invariants.Broken("%d requests are in queues, there are %d", n, s.requests.Len())
	}
	for id, index := range s.requests.All() {
		q := s.requests.At(index)
		onCPU := s.manager.deviceOf(&q.Seq) == &s.manager.cpu
		switch {
		case q.id != id:
			return invariants.Broken("request %d is at the index of %d", q.id, id)
		case s.waiting.Has(index) && (q.known || q.computed > 0 || q.decoding):
			return invariants.Broken("request %d waits with %d blocks and %d tokens computed", id, len(q.table), q.computed)
		case s.running.Has(index) && (!q.known || onCPU):
			return invariants.Broken("request %d runs without blocks on the GPU", id)
		case s.swapped.Has(index) && (!q.known || !onCPU):
			return invariants.Broken("request %d is swapped out without blocks on the CPU", id)
		case q.computed > q.full || q.decoding && q.computed != q.Len-1:
			return invariants.Broken("request %d has %d tokens computed of %d, %d in its table, decoding: %t", id, q.computed, q.Len, q.full, q.decoding)
		}
	}
	return nil
}

func (s *Scheduler) seqs() iter.Seq[*Seq] {
	return func(yield func(*Seq) bool) {
		for _, index := range s.requests.All() {
			if !yield(&s.requests.At(index).Seq) {
				return
			}
		}
		for _, lost := range s.lost {
			if !yield(lost) {
				return
			}
		}
	}
}
