//go:build cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a defect of the library can cause these codes, so the tests of capi/guest cannot see them.
const internalCode, handleCode = -13, -1

func TestAPanicEndsInACodeAndTheObjectCanOnlyBeClosed(t *testing.T) {
	o := objects[int]{name: "number"}
	h := o.add(new(int))
	calls := 0
	good := func(*int) error { calls++; return nil }
	require.Zero(t, o.use(h, good))
	require.EqualValues(t, internalCode, o.use(h, func(*int) error { panic("on purpose") }))
	require.EqualValues(t, internalCode, o.use(h, good))
	_, err := o.remove(h)
	require.NoError(t, err)
	require.EqualValues(t, handleCode, o.use(h, good))
	require.Equal(t, 1, calls)
}
