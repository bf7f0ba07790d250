package kvstore

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/attention"
)

// ErrRequest means that a row continues a request whose tables are not known or are dropped in this step. Check returns
// an error that wraps it.
var ErrRequest = errors.New("unknown request")

// Requests keeps the block tables of requests, which the scheduler changes from step to step. It lays out the tables of
// the scheduled requests for attention.
type Requests struct {
	groups    int
	blockSize int
	blocks    int
	tables    map[uint64][][]int32 // by request and group
	seen      map[uint64]struct{}  // requests of the last step passed to Check
	checked   [][][]int32          // the tables of that step's rows before the step; nil for a row that begins a table

	// The last step passed to Begin.
	Starts, Lens []int32 // attention's QueryStart and SeqLens
	flat         [][]int32
	stride       int
}

// A Row is a scheduled request.
type Row struct {
	ID       uint64
	Fresh    bool // the step brings the whole table
	Computed int  // tokens before this step
	Tokens   int  // to compute now
}

// NewRequests makes tables for groups of layers (KV cache groups) of a store with the given number of blocks.
func NewRequests(groups, blockSize, blocks int) *Requests {
	return &Requests{groups: groups, blockSize: blockSize, blocks: blocks, tables: map[uint64][][]int32{},
		seen: map[uint64]struct{}{}}
}

// Tables returns the block tables of a group, one for each row of the step, and the number of entries in each.
func (q *Requests) Tables(group int) (tables []int32, stride int) { return q.flat[group], q.stride }

// Forget drops the tables of a request that has lost its blocks.
func (q *Requests) Forget(id uint64) { delete(q.tables, id) }

// Point replaces a block in a request's table by its copy.
func (q *Requests) Point(id uint64, group, index int, block int32) {
	if tables := q.tables[id]; tables != nil && uint(group) < uint(q.groups) && uint(index) < uint(len(tables[group])) {
		tables[group][index] = block
	}
}

// Check returns an error if the arguments of Begin are wrong. The list blocks has the new blocks of all rows and
// groups, one after another: first those of row 0 and group 0, then those of row 0 and group 1, and so on. Begin
// changes the table of row i and group g as follows:
//
//	k := i*groups + g
//	added := blocks[ends[k-1]:ends[k]] // blocks[:ends[0]] if k is 0
//	table = append(table[:starts[k]], added...)
//
// Before the step, the tables of a fresh row are empty. Check treats the tables of the requests in gone as dropped.
func (q *Requests) Check(gone []uint64, rows []Row, blocks []int32, starts, ends []int64) error {
	if len(starts) != len(rows)*q.groups || len(ends) != len(starts) {
		return fmt.Errorf("%w: %d starts and %d ends of blocks for %d rows of %d groups", attention.ErrArgument,
			len(starts), len(ends), len(rows), q.groups)
	}
	q.checked = q.checked[:0]
	clear(q.seen)
	begin, tokens := int64(0), 0
	for i := range rows {
		q.seen[rows[i].ID] = struct{}{}
		if len(q.seen) <= i {
			return fmt.Errorf("%w: request %#x is in two rows", attention.ErrArgument, rows[i].ID)
		}
		tables, err := q.tablesBefore(&rows[i], gone)
		if err != nil {
			return err
		}
		if tokens += rows[i].Tokens; tokens > math.MaxInt32 {
			return fmt.Errorf("%w: the step has more than %d tokens to compute", attention.ErrArgument, math.MaxInt32)
		}
		q.checked = append(q.checked, tables)
		for g := range q.groups {
			end := ends[i*q.groups+g]
			if end < begin || end > int64(len(blocks)) {
				return fmt.Errorf("%w: the blocks of row %d, group %d end at %d: they begin at %d, and there are %d",
					attention.ErrArgument, i, g, end, begin, len(blocks))
			}
			present := 0
			if tables != nil {
				present = len(tables[g])
			}
			if err := q.checkBlocks(&rows[i], present, starts[i*q.groups+g], blocks[begin:end]); err != nil {
				return err
			}
			begin = end
		}
	}
	return nil
}

// CheckSlots returns an error if a slot is neither in a block nor -1, which means no slot.
func (q *Requests) CheckSlots(slots []int64) error {
	return checkSlots(slots, int64(q.blocks)*int64(q.blockSize))
}

func checkSlots(slots []int64, n int64) error {
	for i, slot := range slots {
		if slot < -1 || slot >= n {
			return fmt.Errorf("%w: token %d has slot %d; slots are 0 to %d, and -1 is none", attention.ErrArgument, i, slot, n-1)
		}
	}
	return nil
}

// tablesBefore returns the tables that a row continues, or nil if the row begins new tables.
func (q *Requests) tablesBefore(r *Row, gone []uint64) ([][]int32, error) {
	if r.Computed < 0 || r.Tokens < 1 || r.Computed > math.MaxInt32-r.Tokens {
		return nil, fmt.Errorf("%w: request %#x has %d tokens computed and %d to compute", attention.ErrArgument, r.ID,
			r.Computed, r.Tokens)
	}
	if r.Fresh {
		return nil, nil
	}
	tables := q.tables[r.ID]
	if tables == nil || slices.Contains(gone, r.ID) {
		return nil, fmt.Errorf("%w %#x", ErrRequest, r.ID)
	}
	return tables, nil
}

// checkBlocks returns an error if the blocks leave a gap after the table's present entries, if the store lacks one of
// them, or if the table would have too few blocks for the row's tokens.
func (q *Requests) checkBlocks(r *Row, present int, start int64, blocks []int32) error {
	if start < 0 || start > int64(present) {
		return fmt.Errorf("%w: blocks of request %#x go from entry %d on, but its table has %d", attention.ErrArgument, r.ID,
			start, present)
	}
	for _, id := range blocks {
		if uint(id) >= uint(q.blocks) {
			return fmt.Errorf("%w: request %#x gets block %d; there are %d", attention.ErrArgument, r.ID, id, q.blocks)
		}
	}
	n := int(start) + len(blocks)
	if need := (r.Computed + r.Tokens + q.blockSize - 1) / q.blockSize; need > n {
		return fmt.Errorf("%w: request %#x has %d blocks for %d tokens; it needs %d", attention.ErrArgument, r.ID, n,
			r.Computed+r.Tokens, need)
	}
	return nil
}

// Begin changes the tables for a step. It also prepares the step for attention: it lays out the tables of the rows, and
// sets the fields Starts and Lens. The last call of Check must have accepted the same arguments.
func (q *Requests) Begin(rows []Row, blocks []int32, starts, ends []int64) {
	q.Starts, q.Lens, q.stride = append(q.Starts[:0], 0), q.Lens[:0], 1
	begin := int64(0)
	for i := range rows {
		r := &rows[i]
		tables := q.checked[i]
		if tables == nil {
			tables = make([][]int32, q.groups)
			q.tables[r.ID] = tables
		}
		for g := range q.groups {
			part := i*q.groups + g
			tables[g] = append(tables[g][:starts[part]], blocks[begin:ends[part]]...)
			begin = ends[part]
			q.stride = max(q.stride, len(tables[g]))
		}
		q.Starts, q.Lens = append(q.Starts, q.Starts[i]+int32(r.Tokens)), append(q.Lens, int32(r.Computed+r.Tokens))
	}
	q.layOut(rows)
}

func (q *Requests) layOut(rows []Row) {
	for len(q.flat) < q.groups {
		q.flat = append(q.flat, nil)
	}
	for g := range q.groups {
		n := len(rows) * q.stride
		if cap(q.flat[g]) < n {
			q.flat[g] = make([]int32, n, 2*n)
		}
		q.flat[g] = q.flat[g][:n]
		clear(q.flat[g])
		for i := range rows {
			copy(q.flat[g][i*q.stride:], q.tables[rows[i].ID][g])
		}
	}
}
