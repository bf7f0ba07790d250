package kvstore

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
)

func begun(t *testing.T) *Requests {
	q := NewRequests(2, 4, 10)
	rows := []Row{{ID: 1, Fresh: true, Tokens: 6}, {ID: 2, Fresh: true, Tokens: 3}}
	blocks, starts, ends := []int32{1, 2, 3, 4, 5, 6}, []int64{0, 0, 0, 0}, []int64{2, 4, 5, 6}
	require.NoError(t, q.Check(nil, rows, blocks, starts, ends))
	q.Begin(rows, blocks, starts, ends)
	return q
}

func TestAStepThatCannotBeginChangesNothing(t *testing.T) {
	type step struct {
		gone         []uint64
		rows         []Row
		blocks       []int32
		starts, ends []int64
	}
	good := func() step {
		return step{
			rows:   []Row{{ID: 1, Computed: 6, Tokens: 3}, {ID: 3, Fresh: true, Tokens: 1}},
			blocks: []int32{7, 7, 8, 9}, starts: []int64{2, 2, 0, 0}, ends: []int64{1, 2, 3, 4},
		}
	}
	for _, tc := range []struct {
		name    string
		change  func(s *step)
		wantErr error
	}{
		{"nothing wrong", func(*step) {}, nil},
		{"too few starts", func(s *step) { s.starts = s.starts[1:] }, attention.ErrArgument},
		{"too few ends", func(s *step) { s.ends = s.ends[1:] }, attention.ErrArgument},
		{"no tokens in the last row", func(s *step) { s.rows[1].Tokens = 0 }, attention.ErrArgument},
		{"computed below 0", func(s *step) { s.rows[1].Computed = -1 }, attention.ErrArgument},
		{"a request in two rows", func(s *step) { s.rows[1].ID = 1 }, attention.ErrArgument},
		{"an unknown request", func(s *step) { s.rows[1].Fresh = false }, ErrRequest},
		{"a request that the step drops", func(s *step) { s.gone = []uint64{1} }, ErrRequest},
		{"a block outside the store", func(s *step) { s.blocks[3] = 10 }, attention.ErrArgument},
		{"a block below 0", func(s *step) { s.blocks[3] = -1 }, attention.ErrArgument},
		{"ends that go back", func(s *step) { s.ends[3] = 2 }, attention.ErrArgument},
		{"an end after the blocks", func(s *step) { s.ends[3] = 5 }, attention.ErrArgument},
		{"a start after the table", func(s *step) { s.starts[3] = 1 }, attention.ErrArgument},
		{"a start below 0", func(s *step) { s.starts[3] = -1 }, attention.ErrArgument},
		{"too few blocks", func(s *step) { s.rows[1].Tokens = 5 }, attention.ErrArgument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q, s := begun(t), good()
			tc.change(&s)
			err := q.Check(s.gone, s.rows, s.blocks, s.starts, s.ends)
			require.ErrorIs(t, err, tc.wantErr)
			want := begun(t)
			require.Equal(t, want.tables, q.tables)
			require.Equal(t, want.Starts, q.Starts)
			require.Equal(t, want.Lens, q.Lens)
			require.Equal(t, want.flat, q.flat)
			if tc.wantErr == nil {
				q.Begin(s.rows, s.blocks, s.starts, s.ends)
				require.Equal(t, [][]int32{{1, 2, 7}, {3, 4, 7}}, q.tables[1])
				require.Equal(t, []int32{0, 3, 4}, q.Starts)
				require.Equal(t, []int32{9, 1}, q.Lens)
				first, stride := q.Tables(0)
				require.Equal(t, 3, stride)
				require.Equal(t, []int32{1, 2, 7, 8, 0, 0}, first)
			}
		})
	}
}

func TestAStepOfTooManyTokensIsRefused(t *testing.T) {
	const half = 1 << 30
	for _, tc := range []struct {
		name    string
		rows    []Row
		wantErr bool
	}{
		{"as many as fit", []Row{{ID: 1, Fresh: true, Computed: half - 1, Tokens: half}}, false},
		{"computed and new ones are one too many", []Row{{ID: 1, Fresh: true, Computed: half, Tokens: half}}, true},
		{"new ones alone are too many", []Row{{ID: 1, Fresh: true, Tokens: 1 << 40}}, true},
		{"the sum of both overflows", []Row{{ID: 1, Fresh: true, Computed: math.MaxInt, Tokens: math.MaxInt}}, true},
		{"as many as fit in two rows", []Row{{ID: 1, Fresh: true, Tokens: half}, {ID: 2, Fresh: true, Tokens: half - 1}},
			false},
		{"two rows have one too many", []Row{{ID: 1, Fresh: true, Tokens: half}, {ID: 2, Fresh: true, Tokens: half}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const entries = 1 << 15
			q := NewRequests(1, 1<<16, 1)
			var blocks []int32
			var starts, ends []int64
			for range tc.rows {
				blocks = append(blocks, make([]int32, entries)...)
				starts, ends = append(starts, 0), append(ends, int64(len(blocks)))
			}
			err := q.Check(nil, tc.rows, blocks, starts, ends)
			if tc.wantErr {
				require.ErrorIs(t, err, attention.ErrArgument)
				return
			}
			require.NoError(t, err)
			q.Begin(tc.rows, blocks, starts, ends)
			for i := range tc.rows {
				require.Less(t, q.Starts[i], q.Starts[i+1])
				require.Positive(t, q.Lens[i])
			}
		})
	}
}

func TestARequestIsDroppedAndComesBackInOneStep(t *testing.T) {
	q := NewRequests(1, 4, 10)
	rows := []Row{{ID: 1, Fresh: true, Tokens: 4}}
	require.NoError(t, q.Check(nil, rows, []int32{1}, []int64{0}, []int64{1}))
	q.Begin(rows, []int32{1}, []int64{0}, []int64{1})
	require.NoError(t, q.Check([]uint64{1}, rows, []int32{2}, []int64{0}, []int64{1}))
	q.Forget(1)
	q.Begin(rows, []int32{2}, []int64{0}, []int64{1})
	require.Equal(t, [][]int32{{2}}, q.tables[1])
}

func TestBlocksTakeThePlaceOfATablesLastEntries(t *testing.T) {
	q := begun(t)
	rows := []Row{{ID: 1, Computed: 3, Tokens: 4}}
	starts, ends := []int64{1, 0}, []int64{1, 3}
	require.NoError(t, q.Check(nil, rows, []int32{7, 8, 9}, starts, ends))
	q.Begin(rows, []int32{7, 8, 9}, starts, ends)
	require.Equal(t, [][]int32{{1, 7}, {8, 9}}, q.tables[1])
}

func TestAnEntryIsPointedToTheCopyOfItsBlock(t *testing.T) {
	q := begun(t)
	q.Point(1, 1, 0, 9)
	for _, none := range []struct {
		name         string
		id           uint64
		group, index int
	}{
		{"no entry", 1, 1, -1}, {"after the table", 1, 1, 2}, {"no such group", 1, 2, 0}, {"no such request", 5, 0, 0},
	} {
		q.Point(none.id, none.group, none.index, 8)
	}
	require.Equal(t, map[uint64][][]int32{1: {{1, 2}, {9, 4}}, 2: {{5}, {6}}}, q.tables)
}
