package sched

import (
	"testing"

	"llmmemory/internal/testkit/rapidtest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func (e *engine) finish(t *rapid.T) {
	e.SetPause(PauseNone)
	e.release()
	e.finishing = true
	for steps := 0; len(e.ids) > 0 || e.transfers.pending(); steps++ {
		require.Less(t, steps, 4000, "%d requests do not finish", len(e.ids))
		e.endAll(t)
		if (!e.schedule(t) || len(e.flights) == e.config.MaxConcurrentBatches) && len(e.flights) > 0 {
			e.process(t)
		}
	}
	for len(e.flights) > 0 {
		e.process(t)
	}
	require.NoError(t, e.Check())
	require.Equal(t, e.config.Cache.NumGPUBlocks-1, e.Monitor.Load().FreeBlocks)
}

func (e *engine) traffic(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"add":      e.add,
		"add one":  e.add,
		"schedule": func(t *rapid.T) { e.schedule(t) },
		"process":  e.process,
		"step": func(t *rapid.T) {
			e.schedule(t)
			e.process(t)
		},
		"steps": func(t *rapid.T) {
			for range 4 {
				e.schedule(t)
				if len(e.flights) > 0 {
					e.process(t)
				}
			}
		},
		"fail":    e.fail,
		"abort":   e.abort,
		"fork":    e.fork,
		"reset":   e.reset,
		"release": func(*rapid.T) { e.release() },
		"answer":  e.answer,
		"receive": e.receive,
		"send":    e.send,
		"pause": func(t *rapid.T) {
			e.SetPause(rapid.SampledFrom([]Pause{PauseNone, PauseNone, PauseNew, PauseAll}).Draw(t, "pause"))
		},
		"": func(t *rapid.T) { require.NoError(t, e.Check()) },
	})
	e.finish(t)
}

// Ensure that the state is sound after every operation, that a worker that
// knows only the steps finds every request's own tokens in its blocks, that a
// step is empty only if nothing can run, and that all requests finish when no
// more come.
func TestSchedulerStaysSound(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) { newEngine(t, drawConfig(t)).traffic(t) })
}

// Ensure the same where blocks are scarce and prompts are alike.
func TestSchedulerStaysSoundUnderPressure(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		e := newEngine(t, underPressure(t))
		e.reversed = rapid.Bool().Draw(t, "reversed")
		e.traffic(t)
	})
}

// drain lets what runs end while nothing is admitted.
func (e *engine) drain(t *rapid.T) {
	e.SetPause(PauseNew)
	e.finishing = true
	for steps := 0; e.Monitor.Load().Running > 0 || len(e.flights) > 0; steps++ {
		require.Less(t, steps, 1000, "%d requests run and do not finish", e.Monitor.Load().Running)
		if (!e.schedule(t) || len(e.flights) == e.config.MaxConcurrentBatches) && len(e.flights) > 0 {
			e.process(t)
		}
	}
	e.finishing = false
}

// Ensure that what runs goes on to its end while no request is admitted, whatever the requests
// that run and those that wait hold of what the others need.
func TestWhatRunsEndsDuringAPause(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		e := newEngine(t, contended(t))
		e.pictures = true
		t.Repeat(map[string]func(*rapid.T){
			"add":     e.add,
			"add one": e.add,
			"step": func(t *rapid.T) {
				if e.schedule(t); len(e.flights) > 0 {
					e.process(t)
				}
			},
			"drain":   e.drain,
			"abort":   e.abort,
			"fork":    e.fork,
			"release": func(*rapid.T) { e.release() },
			"answer":  e.answer,
			"receive": e.receive,
			"send":    e.send,
			"pause": func(t *rapid.T) {
				e.SetPause(rapid.SampledFrom([]Pause{PauseNone, PauseNone, PauseNew, PauseAll}).Draw(t, "pause"))
			},
			"": func(t *rapid.T) { require.NoError(t, e.Check()) },
		})
		e.drain(t)
		e.finish(t)
	})
}
