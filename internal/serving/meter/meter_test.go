package meter_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
)

func limited(work, bytes, depth int) *meter.Meter {
	return meter.New(context.Background(), meter.Limits{Work: work, Bytes: bytes, Depth: depth})
}

// Ensure that each limit is reached exactly, that the error names it, and that the meter then refuses everything.
func TestLimits(t *testing.T) {
	work := limited(3, 0, 0)
	require.NoError(t, work.Spend(3))
	err := work.Spend(0)
	require.ErrorIs(t, err, meter.ErrTooLarge, "nothing is left")
	require.EqualError(t, err, "too much work: more than 3 units")
	require.Zero(t, work.Left())

	require.Error(t, limited(0, 0, 0).Spend(0), "an empty meter allows nothing")
	require.Error(t, limited(10, 0, 0).Spend(-1), "an overflow")
	require.Error(t, limited(10, 0, 0).Spend(math.MaxInt))

	bytes := limited(100, 128, 0)
	require.NoError(t, bytes.Keep(128))
	require.Zero(t, bytes.Spent())
	require.EqualError(t, bytes.Keep(1), "too much memory: more than 128 bytes")
	require.EqualError(t, bytes.Spend(1), "too much memory: more than 128 bytes")
	require.Equal(t, bytes.Err(), bytes.Enter())

	depth := limited(100, 0, 2)
	require.NoError(t, depth.Enter())
	require.NoError(t, depth.Enter())
	depth.Leave()
	require.NoError(t, depth.Enter())
	require.EqualError(t, depth.Enter(), "nested too deep: deeper than 2")
}

// Ensure that a part charges the whole, and that only the whole's limits end the whole.
func TestPartOfAMeter(t *testing.T) {
	whole := limited(100, 64, 2)
	part := whole.Within(10)
	require.NoError(t, part.Spend(10))
	require.Error(t, part.Spend(1))
	require.NoError(t, whole.Err())
	require.Equal(t, 11, whole.Spent(), "what the part refused was charged first")
	part = whole.Within(1000)
	require.Equal(t, 89, part.Left())
	require.NoError(t, part.Keep(64))
	require.Error(t, whole.Within(10).Keep(1))
	require.NoError(t, part.Enter())
	require.NoError(t, part.Within(10).Enter())
	require.Error(t, part.Spend(1000))
	require.Error(t, whole.Err())
}

// Ensure that the context is read after a bounded amount of work, however it is charged.
func TestContext(t *testing.T) {
	for name, charge := range map[string]func(m *meter.Meter) error{
		"calls of nothing": func(m *meter.Meter) error { return m.Spend(0) },
		"units":            func(m *meter.Meter) error { return m.Spend(1) },
		"many units":       func(m *meter.Meter) error { return m.Spend(1_000_000) },
		"bytes":            func(m *meter.Meter) error { return m.Keep(10) },
		"levels":           func(m *meter.Meter) error { return m.Enter() },
		"parts":            func(m *meter.Meter) error { return m.Within(10).Spend(1) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		m := meter.New(ctx, meter.Limits{Work: math.MaxInt, Bytes: math.MaxInt, Depth: math.MaxInt})
		require.NoError(t, charge(m))
		cancel()
		calls := 0
		for ; charge(m) == nil; calls++ {
			require.LessOrEqual(t, calls, 1000, name)
		}
		require.ErrorIs(t, m.Err(), context.Canceled, name)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, meter.New(ended, meter.Limits{Work: 1}).Spend(1), context.Canceled, "the first charge reads the context")
}
