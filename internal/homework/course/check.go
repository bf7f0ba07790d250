package course

import (
	"errors"
	"strconv"

	"llmmemory/internal/block"
)

// ErrInconsistent is wrapped by the errors of Check. If counts are wrong, these also wrap block.ErrNotConserved.
var ErrInconsistent = errors.New("engine is inconsistent")

type finding struct {
	text  string
	cause error
}

func (f finding) Error() string   { return ErrInconsistent.Error() + ": " + f.text }
func (f finding) Unwrap() []error { return []error{ErrInconsistent, f.cause} }

func found(text string, cause error) error { return finding{text, cause} }

// Check reads the whole engine and returns the first error that it finds. It checks the links of the list in both
// directions, the ids, the numbers of records, the entries of the tables, and the conservation of blocks.
func (e *Engine) Check() error {
	head := &e.Active
	seen := map[int32]bool{}
	for n := head; ; n = n.Next { // cannot loop: two nodes would lead to the first node of a loop, which links back to only one
		if n.Next == nil || n.Prev == nil {
			return found("a link of the list is NULL", nil)
		}
		if n.Next.Prev != n {
			return found("the list forward is not the list backward", nil)
		}
		if n != head {
			if err := e.checkSequence(sequenceOf(n), seen); err != nil {
				return err
			}
		}
		if n.Next == head {
			break
		}
	}
	if err := block.Conserved(e.counts(), int(e.Free), e.entries); err != nil {
		return found(err.Error(), err)
	}
	return nil
}

func (e *Engine) checkSequence(s *Sequence, seen map[int32]bool) error {
	name := "sequence " + strconv.Itoa(int(s.ID))
	switch {
	case seen[s.ID]:
		return found(name+" is listed twice", nil)
	case s.BlockTable == nil:
		return found(name+" has no block_table", nil)
	case s.KVCount < 0 || s.KVCount > maxRecords:
		return found(name+" has "+strconv.Itoa(int(s.KVCount))+" records", nil)
	}
	seen[s.ID] = true
	for l1, l2 := range s.BlockTable {
		if l2 == nil {
			continue
		}
		for slot, entry := range l2 {
			if block.NeedOf(e.counts(), entry) == block.Outside {
				return found(name+", block_table["+strconv.Itoa(l1)+"]["+strconv.Itoa(slot)+"] is "+
					strconv.Itoa(int(entry)), nil)
			}
		}
	}
	return nil
}

// Sequences yields the sequences of the engine in list order. The list must be consistent.
func (e *Engine) Sequences(yield func(*Sequence) bool) {
	for n := e.Active.Next; n != &e.Active && yield(sequenceOf(n)); n = n.Next {
	}
}

func (e *Engine) entries(yield func(int32) bool) {
	for s := range e.Sequences {
		for _, l2 := range s.BlockTable {
			if l2 == nil {
				continue
			}
			for _, entry := range l2 {
				if entry != block.None && !yield(entry) {
					return
				}
			}
		}
	}
}
