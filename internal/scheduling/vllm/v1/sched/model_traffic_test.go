package sched

import (
	"maps"
	"testing"

	"llmmemory/internal/testkit/level"
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

func (e *engine) repeat(t *rapid.T, others map[string]func(*rapid.T)) {
	actions := map[string]func(*rapid.T){
		"add":     e.add,
		"add one": e.add,
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
	}
	maps.Copy(actions, others)
	t.Repeat(actions)
}

func (e *engine) traffic(t *rapid.T) {
	e.repeat(t, map[string]func(*rapid.T){
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
		"fail":  e.fail,
		"reset": e.reset,
	})
	e.finish(t)
}

// Ensure that the state is consistent after every operation. The blocks of each request must contain the request's own
// tokens. The engine's worker, which does not read the scheduler's state, checks this. A step may be empty only if
// nothing can run. All requests must finish when no more are added.
func TestSchedulerStaysSound(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) { newEngine(t, drawConfig(t)).traffic(t) })
}

// Ensure the same where blocks are scarce and prompts are alike.
func TestSchedulerStaysSoundUnderPressure(t *testing.T) {
	level.SkipNormal(t)
	rapidtest.Check(t, func(t *rapid.T) {
		e := newEngine(t, underPressure(t))
		e.reversed = rapid.Bool().Draw(t, "reversed")
		e.traffic(t)
	})
}

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

func TestWhatRunsEndsDuringAPause(t *testing.T) {
	level.SkipNormal(t)
	rapidtest.Check(t, func(t *rapid.T) {
		e := newEngine(t, contended(t))
		e.pictures = true
		e.repeat(t, map[string]func(*rapid.T){
			"step": func(t *rapid.T) {
				if e.schedule(t); len(e.flights) > 0 {
					e.process(t)
				}
			},
			"drain": e.drain,
		})
		e.drain(t)
		e.finish(t)
	})
}
