package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
)

// Ensure that Drain waits for the end of a started series. Meanwhile the engine answers further requests of the
// series.
func TestASeriesThatHasBegunGoesOnWhileTheEngineDrains(t *testing.T) {
	e := start(t, nil)
	series, err := e.Series()
	require.NoError(t, err)
	drained := make(chan error, 1)
	go func() { drained <- e.Drain(nil) }()
	for other, err := e.Series(); err == nil; other, err = e.Series() { // until it drains
		other.End()
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		s, err := series.Submit(request("one two one", 4))
		require.NoError(t, err)
		require.Equal(t, " two", read(t, s, 1)[0].text)
		require.Empty(t, drained, "the series has not ended")
	}
	_, err = e.Submit(request("one two one", 4))
	require.ErrorIs(t, err, engine.ErrClosed)
	series.End()
	require.NoError(t, <-drained)
}

func TestASeriesIsCutOffWhenTheTimeToDrainIsOver(t *testing.T) {
	e := start(t, nil)
	series, err := e.Series()
	require.NoError(t, err)
	require.NoError(t, e.Close())
	_, err = series.Submit(request("x", 1))
	require.ErrorIs(t, err, engine.ErrClosed)
	series.End()
}

// Ensure that a full queue refuses new requests. It accepts further requests of a series that has begun.
func TestAFullQueueRefusesNoSeriesThatHasBegun(t *testing.T) {
	e := start(t, func(c *engine.Config) { c.MaxNumSeqs, c.MaxWaiting = 1, 2 })
	var all []*engine.Series
	for range 3 {
		series, err := e.Series()
		require.NoError(t, err)
		all = append(all, series)
	}
	_, err := e.Series()
	require.ErrorIs(t, err, engine.ErrBusy, "as many as run and wait")
	_, err = e.Submit(request("x", 1))
	require.ErrorIs(t, err, engine.ErrBusy)
	s, err := all[0].Submit(request("one two one", 4))
	require.NoError(t, err)
	require.Equal(t, " two", read(t, s, 1)[0].text)
	for _, series := range all {
		series.End()
	}
	requireIdle(t, e)
	_, err = e.Submit(request("x", 1))
	require.NoError(t, err)
}
