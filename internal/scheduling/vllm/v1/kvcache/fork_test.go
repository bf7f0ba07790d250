package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func newFull(t *testing.T, blocks int) *Cache {
	return newHybrid(t, func(c *Config) { c.NumGPUBlocks = blocks }, Group{Kind: Full, BlockSize: 4})
}

func counting(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	return tokens
}

func added(t *testing.T, c *Cache, tokens []int32) *Request {
	r, err := c.Add(Spec{Tokens: tokens})
	require.NoError(t, err)
	return r
}

func found(t *testing.T, c *Cache, tokens []int32) (r *Request, hit Hit) {
	r = added(t, c, tokens)
	c.Lookup(r, &hit)
	return r, hit
}

func computed(t *testing.T, c *Cache, tokens []int32) *Request {
	r, hit := found(t, c, tokens)
	allocate(t, c, r, Alloc{NumNewTokens: r.NumTokens() - hit.NumTokens, Hit: &hit})
	r.NumComputedTokens = r.NumTokens()
	return r
}

func taken(c *Cache, fence uint64) (p Pending) {
	c.Take(&p, fence)
	return p
}

func fits(t *testing.T, c *Cache, r *Request, a Alloc) bool {
	t.Helper()
	ok, err := c.Allocate(r, &a)
	require.NoError(t, err)
	require.NoError(t, c.Check())
	return ok
}

func allocate(t *testing.T, c *Cache, r *Request, a Alloc) {
	t.Helper()
	require.True(t, fits(t, c, r, a))
}

func forked(t *testing.T, c *Cache, r *Request) *Request {
	child, shares := c.Fork(r, true)
	require.True(t, shares)
	return child
}

// Ensure that the first write to a shared block goes to a copy. Three requests share a partly filled block: two of them
// get copies, and the third writes to the block itself.
func TestForkAndCopyOnWrite(t *testing.T) {
	c := newFull(t, 12)
	parent := computed(t, c, counting(6))
	require.Equal(t, []int32{1, 2}, parent.Table(0))
	var children [2]*Request
	for i := range children {
		child := forked(t, c, parent)
		require.Equal(t, parent.Tokens(), child.Tokens())
		require.Equal(t, Hashes(parent), Hashes(child))
		require.Equal(t, []int32{1, 2}, child.Table(0))
		children[i] = child
	}
	require.EqualValues(t, 3, c.Pool.Count(2))
	for _, r := range []*Request{parent, children[0], children[1]} {
		r.Append(7)
		allocate(t, c, r, Alloc{NumNewTokens: 1})
		r.NumComputedTokens = 7
	}
	copies := taken(c, 0).Copies
	require.Len(t, copies, 2, "the last one is alone")
	require.Equal(t, Copy{Src: 2, Dst: 3, Request: parent, Index: 1}, copies[0])
	require.Equal(t, Copy{Src: 2, Dst: 4, Request: children[0], Index: 1}, copies[1])
	require.Equal(t, []int32{1, 3}, parent.Table(0))
	require.Equal(t, []int32{1, 4}, children[0].Table(0))
	require.Equal(t, []int32{1, 2}, children[1].Table(0))
	require.NoError(t, c.Check())
	parent.Append(8)
	allocate(t, c, parent, Alloc{NumNewTokens: 1})
	require.Empty(t, taken(c, 0).Copies, "everybody is alone")
	for _, r := range []*Request{parent, children[0], children[1]} {
		c.Release(r, Drop, 0)
	}
	require.NoError(t, c.Check())
	require.Equal(t, 11, c.Pool.NumFree())
}

func TestAPendingCopyKeepsItsBlocks(t *testing.T) {
	c := newFull(t, 12)
	parent := computed(t, c, counting(6))
	child := forked(t, c, parent)
	child.Append(7)
	allocate(t, c, child, Alloc{NumNewTokens: 1})
	c.Release(child, Drop, 0)
	c.Release(parent, Drop, 0)
	require.NoError(t, c.Check())
	require.Equal(t, 9, c.Pool.NumFree())
	require.Equal(t, []Copy{{Src: 2, Dst: 3, Index: 1}}, taken(c, 0).Copies)
	require.Equal(t, 11, c.Pool.NumFree())
	require.NoError(t, c.Check())
}

func TestReplaceLastNamesOtherTokens(t *testing.T) {
	c := newFull(t, 12)
	parent := computed(t, c, counting(7))
	parent.Append(7)
	child := forked(t, c, parent)
	require.NoError(t, child.ReplaceLast(99))
	other := computed(t, c, []int32{0, 1, 2, 3, 4, 5, 6, 99})
	require.Equal(t, Hashes(other), Hashes(child), "it names other tokens now")
	require.NotEqual(t, Hashes(parent), Hashes(child))
	require.NoError(t, c.Check())
	allocate(t, c, child, Alloc{NumNewTokens: 1})
	child.NumComputedTokens = 8
	require.ErrorIs(t, child.ReplaceLast(5), ErrFork, "it is computed")
	require.ErrorIs(t, added(t, c, counting(3)).ReplaceLast(5), ErrFork, "it is of the prompt")
}

// Ensure that Rollback frees the blocks that have no computed token any more, and only these.
func TestRejectedDraftsGiveTheirBlocksBack(t *testing.T) {
	c := newFull(t, 12)
	r := computed(t, c, counting(6))
	r.Append(6)
	allocate(t, c, r, Alloc{NumNewTokens: 8}) // one token, seven drafts: up to 14
	r.NumComputedTokens = 14
	require.Equal(t, []int32{1, 2, 3, 4}, r.Table(0))
	require.ErrorIs(t, r.Rollback(15), ErrRequest, "forward")
	require.ErrorIs(t, r.Rollback(3), ErrRequest, "into a registered block")
	require.Equal(t, 14, r.NumComputedTokens)
	require.NoError(t, r.Rollback(8))
	require.Equal(t, []int32{1, 2}, r.Table(0))
	require.Equal(t, 8, r.NumComputedTokens)
	require.NoError(t, c.Check())
	require.Equal(t, []int32{4, 3}, collect(c)[:2], "from the end, to the head of the queue")
}

func collect(c *Cache) (ids []int32) {
	for id := range c.Pool.Queue() {
		ids = append(ids, id)
	}
	return ids
}

// Ensure that Take returns copies group by group. Within a group, the oldest copy must be first.
func TestCopiesAreHandedOutByGroup(t *testing.T) {
	c := newHybrid(t, nil, Group{Kind: Full, BlockSize: 4}, Group{Kind: SlidingWindow, BlockSize: 4, Window: 64})
	parent := computed(t, c, counting(6))
	children := []*Request{forked(t, c, parent), forked(t, c, parent)}
	for _, child := range children {
		child.Append(6)
		allocate(t, c, child, Alloc{NumNewTokens: 1})
	}
	var got []Copy
	for _, p := range taken(c, 0).Copies {
		got = append(got, Copy{Group: p.Group, Request: p.Request})
	}
	require.Equal(t, []Copy{{Request: children[0]}, {Request: children[1]}, {Group: 1, Request: children[0]}, {Group: 1, Request: children[1]}}, got)
}

// Ensure that changes to the tokens of a fork or of its parent do not change the other request's tokens.
func TestForksThatWaitKeepTheirTokens(t *testing.T) {
	original := counting(8)
	for _, test := range []struct {
		name   string
		change func(t *testing.T, c *Cache, r, other *Request)
		want   []int32 // of other
	}{
		{"one replaces its last token", func(t *testing.T, _ *Cache, r, _ *Request) {
			require.NoError(t, r.ReplaceLast(99))
		}, original},
		{"both append", func(_ *testing.T, _ *Cache, r, other *Request) {
			other.Append(20, 21, 22, 23)
			r.Append(30, 31, 32, 33)
		}, append(counting(8), 20, 21, 22, 23)},
		{"both replace their last tokens", func(t *testing.T, _ *Cache, r, other *Request) {
			require.NoError(t, other.ReplaceLast(98))
			require.NoError(t, r.ReplaceLast(99))
		}, append(counting(7), 98)},
		{"one is dropped, and others come", func(t *testing.T, c *Cache, r, _ *Request) {
			c.Release(r, Drop, 0)
			for range 3 {
				added(t, c, []int32{5, 5, 5, 5, 5, 5, 5, 5})
			}
		}, original},
	} {
		for _, parents := range []bool{true, false} {
			name := test.name + ", the child"
			if parents {
				name = test.name + ", the parent"
			}
			t.Run(name, func(t *testing.T) {
				c := newFull(t, 12)
				parent := added(t, c, counting(7))
				parent.Append(7)
				parent.Reserve(100)
				child, shares := c.Fork(parent, false)
				require.False(t, shares)
				r, other := child, parent
				if parents {
					r, other = parent, child
				}
				test.change(t, c, r, other)
				require.Equal(t, test.want, other.Tokens())
				require.NoError(t, c.Check())
			})
		}
	}
}
