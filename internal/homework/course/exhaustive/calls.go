package exhaustive

import (
	"slices"

	"llmmemory/internal/homework/course/trace"
)

// One function for each call of the handout, with its sentences.

// init: "Return NULL if pool_addr == NULL or pool_size < BLOCK_SIZE."
func (s *State) init(op trace.Op) bool {
	if op.A < blockSize || !mallocs(op, 2) {
		return false
	}
	blocks := op.A / blockSize
	*s = State{Exists: true, Free: blocks, Counts: make([]int32, blocks), Pool: make([]Record, blocks*perBlock)}
	for i := range s.Pool {
		s.Pool[i] = untouched(i)
	}
	return true
}

// firstFit: "use a for loop from 0 to total_local_blocks - 1 and pick the very
// first block where ref_count == 0".
func (s *State) firstFit() int32 {
	for id, count := range s.Counts {
		if count == 0 {
			return int32(id)
		}
	}
	panic("exhaustive: free_local_blocks is above the number of free blocks")
}

// take gives an unmapped entry a free block: "map its ID into the L2 table, set
// its ref_count to 1, and decrement free_local_blocks".
func (s *State) take(entry *int32) {
	*entry = s.firstFit()
	s.Counts[*entry] = 1
	s.Free--
}

func newTable() *Table {
	t := &Table{}
	for i := range t {
		t[i] = unmapped
	}
	return t
}

// create: "Return NULL if initial_kv_len <= 0 or if seq_id already exists"; "if
// required blocks exceed 256 OR exceed free_local_blocks, return NULL".
func (s *State) create(op trace.Op) bool {
	id, length := op.A, op.B
	if length <= 0 || s.find(id) != nil {
		return false
	}
	required := (int64(length) + perBlock - 1) / perBlock
	if required > maxBlocks || required > int64(s.Free) {
		return false
	}
	if !mallocs(op, 2+int(required+tableSize-1)/tableSize) {
		return false
	}
	q := Sequence{ID: id, KVCount: length}
	for block := range required {
		table := &q.Tables[block/tableSize]
		if *table == nil {
			*table = newTable()
		}
		s.take(&(*table)[block%tableSize])
	}
	s.Sequences = append(s.Sequences, q)
	return true
}

// fork: "Ensure the parent exists and new_seq_id is globally unique"; "exactly
// copy the mapped entries"; "increment the global ref_count for every valid
// physical block inherited by the child".
func (s *State) fork(op trace.Op) bool {
	parent := s.find(op.A)
	if parent == nil || s.find(op.B) != nil || !mallocs(op, 2+parent.tables()) {
		return false
	}
	child := Sequence{ID: op.B, KVCount: parent.KVCount}
	for i, table := range parent.Tables {
		if table == nil {
			continue
		}
		child.Tables[i] = table
		for _, id := range table {
			if id != unmapped {
				s.Counts[id]++
			}
		}
	}
	s.Sequences = append(s.Sequences, child)
	return true
}

// append follows task 4: it finds the sequence, the position and the block that it
// needs before it changes anything.
func (s *State) append(op trace.Op) bool {
	q := s.find(op.A)
	if q == nil || q.KVCount/perBlock >= maxBlocks {
		return false
	}
	block, offset := q.KVCount/perBlock, q.KVCount%perBlock
	table := q.Tables[block/tableSize]
	missing := table == nil
	if missing {
		table = newTable()
	}
	entry := table[block%tableSize]
	if entry == unmapped || s.Counts[entry] > 1 {
		if s.Free == 0 || missing && !mallocs(op, 1) {
			return false
		}
		changed := *table
		q.Tables[block/tableSize] = &changed
		old := entry
		s.take(&changed[block%tableSize])
		entry = changed[block%tableSize]
		if old != unmapped {
			s.Counts[old]--
			copy(s.block(entry), s.block(old))
		}
	}
	s.block(entry)[offset] = Record(op.B)
	q.KVCount++
	return true
}

func (s *State) block(id int32) []Record { return s.Pool[id*perBlock : (id+1)*perBlock] }

// free: "For every mapped physical block (!= -1), decrement its ref_count. If a
// block's count becomes 0, increment free_local_blocks."
func (s *State) free(op trace.Op) bool {
	q := s.find(op.A)
	if q == nil {
		return false
	}
	for _, table := range q.Tables {
		if table == nil {
			continue
		}
		for _, id := range table {
			if id == unmapped {
				continue
			}
			if s.Counts[id]--; s.Counts[id] == 0 {
				s.Free++
			}
		}
	}
	s.Sequences = slices.DeleteFunc(s.Sequences, func(other Sequence) bool { return other.ID == op.A })
	return true
}
