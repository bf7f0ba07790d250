package device

import (
	"slices"
	"testing"

	"llmmemory/internal/block"

	"github.com/stretchr/testify/require"
)

// Ensure that Ascending and Descending return unused blocks from opposite ends. A freed block must be taken next.
func TestTheDevicesBeginFromOppositeEnds(t *testing.T) {
	up, down := Ascending(10, 3), Descending(0, 3)
	require.Equal(t, []int32{10, 11, 12}, slices.Collect(up.Free()))
	require.Equal(t, []int32{2, 1, 0}, slices.Collect(down.Free()))
	for _, want := range []int32{10, 11, 12, block.None} {
		require.Equal(t, want, up.Take())
	}
	require.True(t, up.Drop(11))
	require.True(t, up.Drop(10))
	require.Equal(t, []int32{10, 11}, slices.Collect(up.Free()))
	require.True(t, up.Has(12) && !up.Has(9) && !up.Has(13))
	require.Panics(t, func() { up.Drop(11) }, "it is free")
}

func TestASharedBlockIsReplacedBeforeAWrite(t *testing.T) {
	d := Ascending(10, 3)
	slot := d.Take()
	require.False(t, d.Ref(slot))
	require.True(t, d.Shared(slot))
	require.Equal(t, Pair{10, 11}, d.CopyOnWrite(&slot, d.Take()))
	require.EqualValues(t, 11, slot)
	require.Equal(t, []int32{1, 1, 0}, d.Counts())
	require.True(t, d.Unref(10), "it has no references and is not in the stack")
	require.Equal(t, 1, d.NumFree())
	require.True(t, d.Ref(10))
}

func TestCheckFindsEveryWrongState(t *testing.T) {
	for name, damage := range map[string]func(d *Device){
		"a block twice in the stack":   func(d *Device) { d.free = append(d.free, d.free[0]) },
		"a used block in the stack":    func(d *Device) { d.free = append(d.free, 10) },
		"another device's block":       func(d *Device) { d.free[0] = 5 },
		"a lost block":                 func(d *Device) { d.free = d.free[:1] },
		"a reference without an entry": func(d *Device) { d.Ref(10) },
	} {
		d := Ascending(10, 3)
		used := []int32{d.Take()}
		require.NoError(t, d.Check(0, slices.Values(used)))
		damage(&d)
		require.ErrorIs(t, d.Check(0, slices.Values(used)), block.ErrNotConserved, name)
	}
	d := Ascending(0, 1)
	d.Unref(d.Take())
	none := slices.Values([]int32(nil))
	require.Error(t, d.Check(0, none))
	require.NoError(t, d.Check(1, none), "one is kept outside the stack")
}
