package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
)

func newPool(t testing.TB, blocks int) *Pool {
	p, err := New(Config{NumGPUBlocks: blocks, EnableCaching: true, HashBlockSize: 4, EnableEvents: true})
	require.NoError(t, err)
	return p
}

func TestImpossibleConfigurationsAreRefused(t *testing.T) {
	for _, c := range []Config{{}, {NumGPUBlocks: -1, HashBlockSize: 1}, {NumGPUBlocks: 1 << 31, HashBlockSize: 1}, {NumGPUBlocks: 8}} {
		_, err := New(c)
		require.Error(t, err, "%+v", c)
	}
}

func TestBrokenInvariantsPanic(t *testing.T) {
	p := newPool(t, 5)
	require.PanicsWithValue(t, "block 2 is freed, but it is free already", func() { p.Free([]int32{2}) })
	p = newPool(t, 5)
	c := &Content{Tokens: make([]int32, 8)}
	c.Extend(blockhash.LE{}, 4)
	_, err := p.Get(nil, 1)
	require.NoError(t, err)
	p.Register(c, []int32{1}, 0, 1, 4, 0, nil)
	p.Register(c, []int32{1}, 0, 1, 4, 0, nil) // as the other side of a fork does
	require.NoError(t, p.View.Check())
	require.Panics(t, func() { p.Register(c, []int32{1}, 0, 1, 4, 1, nil) }, "another key")
}

// A block can have several keys, for example for its first 12 and its first 8 tokens. Ensure that InsertedSince and
// InsertedNow use the step in which the block got its newest key.
func TestABlockIsInsertedWhenItsLastKeyIs(t *testing.T) {
	p := newPool(t, 5)
	c := &Content{Tokens: make([]int32, 16)}
	c.Extend(blockhash.LE{}, 4)
	_, err := p.Get(nil, 1)
	require.NoError(t, err)
	require.False(t, p.View.InsertedNow(1), "it has no key")
	for step, tokens := range map[uint32]int{7: 12, 9: 8} {
		p.SetStamp(step)
		p.RegisterPart(c, 1, tokens, 0)
		require.True(t, p.View.InsertedSince(1, step))
		require.False(t, p.View.InsertedSince(1, step+1))
		p.Evict(1)
	}
	p.SetStamp(2)
	p.RegisterPart(c, 1, 12, 0)
	p.SetStamp(3)
	p.RegisterPart(c, 1, 8, 0)
	require.Equal(t, 2, p.View.NumKeys())
	require.True(t, p.View.InsertedNow(1))
}

// Ensure that Register gives no key to the null block, and none to a block whose element of the mask is false. Version
// must change whenever a key is removed.
func TestKeysComeAndGo(t *testing.T) {
	p := newPool(t, 5)
	c := &Content{Tokens: make([]int32, 16)}
	c.Extend(blockhash.LE{}, 4)
	ids, err := p.Get(nil, 3)
	require.NoError(t, err)
	p.Register(c, append(ids, Null), 0, 4, 4, 0, []bool{true, false, true, true})
	for id, want := range map[int32]bool{Null: false, ids[0]: true, ids[1]: false, ids[2]: true} {
		_, _, ok := p.View.Primary(id)
		require.Equal(t, want, ok, "block %d", id)
	}
	version := p.View.Version()
	p.Evict(ids[0])
	require.Greater(t, p.View.Version(), version)
	p.Free(ids)
	version = p.View.Version()
	require.True(t, p.Reset())
	require.Greater(t, p.View.Version(), version)
	require.Zero(t, p.View.NumKeys())
}

func TestCheckSeesDamage(t *testing.T) {
	c := &Content{Tokens: make([]int32, 16)}
	c.Extend(blockhash.LE{}, 4)
	for _, tc := range []struct {
		name, wantErr string
		damage        func(p *Pool)
	}{
		{"count of a queued block", "is in the queue with the count 1", func(p *Pool) { p.recs[7].count = 1 }},
		{"a block without users outside the queue", "in the queue: false", func(p *Pool) { p.recs[1].count = 0 }},
		{"a negative count", "has the count -1", func(p *Pool) { p.recs[1].count = -1 }},
		{"a wrong number of free blocks", "recorded are", func(p *Pool) { p.free-- }},
		{"a wrong link", "follows", func(p *Pool) { p.recs[8].prev = 5 }},
		{"a count of the null block", "the null block has", func(p *Pool) { p.recs[0].count = 3 }},
		{"a map entry without a key", "is in the map without a key", func(p *Pool) { p.recs[1].tokens = 0 }},
		{"a hash in the wrong slot", "slot ", func(p *Pool) { p.recs[2].hash[4] ^= 1 }},
		{"a key of another group", "has another key", func(p *Pool) { p.recs[3].group = 9 }},
		{"a wrong number of keys", "keys are in the map", func(p *Pool) { p.used++ }},
		{"two keys in one entry", "blocks have 5 keys, the map has 4", func(p *Pool) { p.recs[6].tokens = 4; p.recs[6].entry = p.recs[1].entry }},
		{"an entry that is not marked", "is not marked", func(p *Pool) { unmark(p) }},
		{"a wrong order of copies", "is not the one in front", func(p *Pool) { p.recs[3].older = 3 }},
		{"a key of another block", "has a key of block", func(p *Pool) { p.additional[0].block = 3 }},
	} {
		p := newPool(t, 10)
		_, err := p.Get(nil, 4)
		require.NoError(t, err)
		p.Register(c, []int32{1, 2}, 0, 2, 4, 0, nil)
		p.Register(c, []int32{3}, 0, 1, 4, 0, nil)
		_, ok := p.RegisterPart(c, 2, 4, 1)
		require.True(t, ok)
		require.NoError(t, p.View.Check())
		tc.damage(p)
		err = p.View.Check()
		require.ErrorIs(t, err, invariants.ErrBroken, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
}

func unmark(p *Pool) {
	for i := range p.slots {
		p.slots[i].tag &^= duplicated
	}
}

func TestAStoredEventTellsEverything(t *testing.T) {
	p := newPool(t, 10)
	c := &Content{Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, LoRAID: 7}
	c.Extras = blockhash.Extras{LoRA: "ada", Salt: "s"}
	c.Extend(blockhash.LE{}, 4)
	ids, err := p.Get(nil, 3)
	require.NoError(t, err)
	p.Register(c, ids, 0, 1, 4, 0, nil)
	p.Register(c, ids, 1, 3, 4, 0, []bool{false, true})
	var events Events
	p.View.TakeEvents(&events)
	require.Len(t, events.List, 2)
	first, second := &events.List[0], &events.List[1]
	require.False(t, first.HasParent)
	require.Equal(t, [][]blockhash.Key{{{Text: "ada"}, {Text: "s"}}}, first.Extra)
	require.Equal(t, c.Hashes[:1], events.Hashes(first))
	require.True(t, second.HasParent)
	require.Equal(t, c.Hashes[0], second.Parent)
	require.Equal(t, c.Hashes[2:3], events.Hashes(second))
	require.Equal(t, c.Tokens[4:12], events.Tokens(second))
	require.Equal(t, "ada", second.LoRA)
	require.EqualValues(t, 7, second.LoRAID)
	require.Equal(t, [][]blockhash.Key{{{Text: "ada"}}}, second.Extra)

	p.ReportHit(c, 2, 4, 0)
	p.View.TakeEvents(&events)
	require.Len(t, events.List, 1)
	require.Equal(t, c.Hashes[:2], events.Hashes(&events.List[0]))
	require.Equal(t, c.Tokens[:8], events.Tokens(&events.List[0]))
	p.View.TakeEvents(&events)
	require.Empty(t, events.List)
}
