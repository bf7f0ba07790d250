package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// As vLLM's tests/v1/core/test_deferred_block_free.py.

func deferringConfig(steps int) Config {
	c := transferConfig(10000)
	c.AsyncScheduling, c.MaxConcurrentBatches = true, steps
	c.Connector = Connector{Consumer: true}
	return c
}

func inFlight(t *testing.T, c Config, steps int, spec Spec) (*host, ID, int) {
	h := newHost(t, c)
	spec.Stop = []int32{eos}
	id := h.add(48, 1, spec)
	for i := range steps {
		rows := h.schedule()
		require.Len(t, rows, 1)
		if i > 0 {
			require.Equal(t, 1, rows[0].NumScheduledTokens)
		}
	}
	return h, id, h.Monitor.Load().FreeBlocks
}

func TestBlocksAreFreeWhenNoStepInFlightWritesThem(t *testing.T) {
	type action struct {
		name string
		call func(h *host, id ID)
	}
	stop := action{"stop", func(h *host, _ ID) { h.update(eos) }}
	abort := action{"abort", func(h *host, id ID) { h.Abort(id) }}
	preempt := action{"preempt", func(h *host, id ID) {
		h.lose(id)
	}}
	fail := action{"a failed step", func(h *host, id ID) {
		h.Abort(id)
		h.fail()
	}}
	plain := deferringConfig(2)
	plain.Connector = Connector{}
	pipeline := deferringConfig(2)
	pipeline.AsyncScheduling, pipeline.PipelineParallelSize = false, 2
	for _, test := range []struct {
		name string
		Config
		steps int
		action
		kept int // updates after which the blocks are still in use
	}{
		{"without a connector, at once", plain, 2, stop, -1},
		{"finished by a stop token, a step behind", deferringConfig(2), 2, stop, 0},
		{"finished by the newest step", deferringConfig(2), 1, stop, -1},
		{"aborted with two steps in flight", deferringConfig(2), 2, abort, 1},
		{"aborted with three steps in flight", deferringConfig(3), 3, abort, 2},
		{"preempted with two steps in flight", deferringConfig(2), 2, preempt, 1},
		{"aborted in a pipeline", pipeline, 1, abort, 0},
		{"aborted before both steps in flight fail", deferringConfig(2), 2, fail, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, id, busy := inFlight(t, test.Config, test.steps, Spec{})
			test.call(h, id)
			for range test.kept {
				require.Equal(t, busy, h.Monitor.Load().FreeBlocks)
				h.update(1)
			}
			if test.kept >= 0 {
				require.Equal(t, busy, h.Monitor.Load().FreeBlocks)
				require.Positive(t, h.Monitor.Load().Deferred)
				h.update(1)
			}
			require.Equal(t, 9999, h.Monitor.Load().FreeBlocks)
			require.Zero(t, h.Monitor.Load().Deferred)
		})
	}
}

// vLLM: test_kv_pressure_preempt_mid_handoff.
func TestAPreemptedProducerComputesAgain(t *testing.T) {
	for _, test := range []struct {
		Connector
		delivers bool
	}{
		{Connector{}, false},
		{Connector{Producer: true}, true},
		{Connector{Producer: true, Consumer: true}, true},
		{Connector{Consumer: true}, false},
		{Connector{Producer: true, BestEffort: true}, false},
	} {
		t.Run(fmt.Sprintf("%+v", test.Connector), func(t *testing.T) {
			c := transferConfig(5)
			c.MaxNumBatchedTokens, c.AsyncScheduling, c.Connector = 512, true, test.Connector
			h := newHost(t, c)
			h.add(32, 1, Spec{MaxTokens: 8})
			handoff := h.add(32, 2, Spec{MaxTokens: 1})
			h.schedule()
			r := h.requests.Get(uint64(handoff))
			require.Equal(t, 1, r.placeholders)
			h.schedule()
			require.Equal(t, preempted, r.status)
			require.Equal(t, 32, r.stale)
			require.Equal(t, test.delivers, r.dropStale)
			done := h.update(1)
			if test.delivers {
				require.Empty(t, done, "the blocks to be sent are gone")
				require.Zero(t, r.stale)
			} else {
				require.Equal(t, []Done{{ID: handoff, Reason: Length}}, done)
			}
		})
	}
}

// Ensure that the two blocks of a copy become free only after the step that copies has run. This is necessary only if a
// connector loads blocks. If one of the two blocks were free earlier, the connector could load into it before the copy.
func TestBothEndsOfACopyWaitForItsStep(t *testing.T) {
	for consumer, want := range map[bool]int{true: 2, false: 0} {
		c := small(20)
		c.AsyncScheduling, c.Connector.Consumer = true, consumer
		h := newHost(t, c)
		parent := h.add(6, 1, Spec{})
		h.run(1)
		h.fork(parent, Child{Last: -1})
		h.schedule()
		require.Len(t, h.step.Copies, 1)
		require.Equal(t, want, h.Monitor.Load().Deferred)
		h.run(1)
		require.Zero(t, h.Monitor.Load().Deferred)
	}
}
