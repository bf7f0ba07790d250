package kvstore

import (
	"errors"
	"fmt"
)

// ErrRequest is wrapped when a step goes on with a request that no step has begun.
var ErrRequest = errors.New("unknown request")

// Requests keeps the block tables of requests by what the steps of a scheduler
// say of them, and lays those of the scheduled ones out for attention.
type Requests struct {
	groups    int
	blockSize int
	blocks    int
	tables    map[uint64][][]int32 // by request and group

	// Of the step that was begun last.
	Starts, Lens []int32 // attention's QueryStart and SeqLens
	flat         [][]int32
	stride       int
}

// A Row is a scheduled request.
type Row struct {
	ID       uint64
	Fresh    bool // the step has the whole table
	Computed int  // tokens before this step
	Tokens   int  // to compute now
}

// NewRequests makes tables for groups of layers over a store of blocks.
func NewRequests(groups, blockSize, blocks int) *Requests {
	return &Requests{groups: groups, blockSize: blockSize, blocks: blocks, tables: map[uint64][][]int32{}}
}

// Tables are the block tables of a group's rows, one after the other, and how
// many entries each has.
func (q *Requests) Tables(group int) (tables []int32, stride int) { return q.flat[group], q.stride }

// Forget drops the tables of requests that have lost their blocks.
func (q *Requests) Forget(id uint64) { delete(q.tables, id) }

// Point sets an entry of a request's table to another block, the copy of what was
// there.
func (q *Requests) Point(id uint64, group, index int, block int32) {
	if tables := q.tables[id]; tables != nil && uint(group) < uint(q.groups) && uint(index) < uint(len(tables[group])) {
		tables[group][index] = block
	}
}

// Begin enters the blocks of a step: part i = row · groups + group of blocks ends
// at ends[i] and goes into its table from entry starts[i] on; what the table had
// there is gone. An error leaves the tables of the rows before it changed.
func (q *Requests) Begin(rows []Row, blocks []int32, starts, ends []int64) error {
	if len(starts) != len(rows)*q.groups || len(ends) != len(starts) {
		return fmt.Errorf("%w: %d rows of %d groups with %d starts and %d ends of blocks", ErrArgument, len(rows), q.groups, len(starts), len(ends))
	}
	q.Starts, q.Lens, q.stride = append(q.Starts[:0], 0), q.Lens[:0], 1
	at := int64(0)
	for i := range rows {
		for g := range q.groups {
			end := ends[i*q.groups+g]
			if end < at || end > int64(len(blocks)) {
				return fmt.Errorf("%w: row %d has the blocks %d to %d of %d", ErrArgument, i, at, end, len(blocks))
			}
			if err := q.enter(&rows[i], g, starts[i*q.groups+g], blocks[at:end]); err != nil {
				return err
			}
			at = end
		}
		n := q.Starts[i] + int32(rows[i].Tokens)
		q.Starts, q.Lens = append(q.Starts, n), append(q.Lens, int32(rows[i].Computed+rows[i].Tokens))
	}
	q.layOut(rows)
	return nil
}

func (q *Requests) enter(r *Row, group int, start int64, blocks []int32) error {
	const most = 1 << 30
	if r.Computed < 0 || r.Tokens < 1 || r.Computed > most || r.Tokens > most {
		return fmt.Errorf("%w: request %#x has %d tokens computed and %d to compute", ErrArgument, r.ID, r.Computed, r.Tokens)
	}
	if r.Fresh && group == 0 {
		q.tables[r.ID] = make([][]int32, q.groups)
	}
	tables := q.tables[r.ID]
	if tables == nil {
		return fmt.Errorf("%w %#x", ErrRequest, r.ID)
	}
	if start < 0 || start > int64(len(tables[group])) {
		return fmt.Errorf("%w: blocks of request %#x go from entry %d on, but the table has %d", ErrArgument, r.ID, start, len(tables[group]))
	}
	for _, id := range blocks {
		if uint(id) >= uint(q.blocks) {
			return fmt.Errorf("%w: request %#x gets block %d of %d", ErrArgument, r.ID, id, q.blocks)
		}
	}
	tables[group] = append(tables[group][:start], blocks...)
	if need := (r.Computed + r.Tokens + q.blockSize - 1) / q.blockSize; need > len(tables[group]) {
		return fmt.Errorf("%w: request %#x has %d blocks for %d tokens", ErrArgument, r.ID, len(tables[group]), r.Computed+r.Tokens)
	}
	q.stride = max(q.stride, len(tables[group]))
	return nil
}

// layOut copies the tables of the rows, padded to the longest.
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
