package reqtable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandlesDoNotComeBack(t *testing.T) {
	var table Handles[string]
	a, b, c := "a", "b", "c"
	ha, hb := table.Add(&a), table.Add(&b)
	require.Equal(t, &a, table.Get(ha))
	require.Equal(t, &b, table.Get(hb))
	table.Remove(ha)
	table.Remove(ha)
	hc := table.Add(&c)
	require.Nil(t, table.Get(ha))
	require.Equal(t, &c, table.Get(hc))
	require.Equal(t, 2, table.Len())
	for _, h := range []uint64{0, 1, 99, 1 << 63, ^uint64(0)} {
		require.Nil(t, table.Get(h), "%x", h)
		table.Remove(h)
	}
	require.Equal(t, 2, table.Len())
}

func TestAnEntryWhoseGenerationsAreUsedUpIsLeftAlone(t *testing.T) {
	var table Handles[int]
	v := 1
	h := table.Add(&v)
	table.entries[0].generation = ^uint32(0)
	table.Remove(uint64(^uint32(0)) << 32)
	require.NotEqual(t, uint32(0), uint32(table.Add(&v)), "another entry")
	require.Nil(t, table.Get(h))
	require.Nil(t, table.Get(0))
}
