package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ensure that a sampled block's time counts from when it was handed out to when it
// was used again or evicted, and that its last four hits give gaps.
func TestResidencyIsMeasured(t *testing.T) {
	p, err := New(Config{NumGPUBlocks: 4, EnableCaching: true, HashBlockSize: 4, ResidencySample: 0.5})
	require.NoError(t, err)
	now, chance := time.Duration(0), 0.0
	p.sampler.random, p.sampler.now = func() float64 { return chance }, func() time.Duration { now += 10; return now }
	ids, err := p.Get(nil, 1) // at 10
	require.NoError(t, err)
	for range 6 {
		p.Touch(ids) // at 20, 30, ... 70
	}
	p.Evict(ids[0]) // at 80
	require.Equal(t, Residency{Evicted: 1, Lifetime: 70, Idle: 10, Gaps: 3, GapTime: 30}, p.TakeResidency())
	p.Evict(ids[0])
	require.Zero(t, p.TakeResidency(), "its time is over")
	ids, err = p.Get(nil, 1) // at 90
	require.NoError(t, err)
	p.Free(ids)
	chance = 0.5
	_, err = p.Get(nil, 2) // the first of them again, at 100
	require.NoError(t, err)
	require.Equal(t, Residency{Evicted: 1, Lifetime: 10, Idle: 10}, p.TakeResidency())
	p.Evict(3)
	require.Zero(t, p.TakeResidency(), "not drawn")
}

func TestResidencyIsNotMeasuredUnlessAskedFor(t *testing.T) {
	p, err := New(Config{NumGPUBlocks: 4, EnableCaching: true, HashBlockSize: 4})
	require.NoError(t, err)
	require.Nil(t, p.sampler)
	require.Zero(t, p.TakeResidency())
	_, err = New(Config{NumGPUBlocks: 4, HashBlockSize: 4, ResidencySample: 2})
	require.ErrorContains(t, err, "a part of 2")
}

// Ensure that blocks without contents that could be hit are not counted: they have none to lose.
func TestResidencyIsNotMeasuredWithoutCaching(t *testing.T) {
	p, err := New(Config{NumGPUBlocks: 2, HashBlockSize: 4, ResidencySample: 1})
	require.NoError(t, err)
	for range 2 {
		ids, err := p.Get(nil, 1)
		require.NoError(t, err)
		p.Free(ids)
	}
	require.Zero(t, p.TakeResidency())
}
