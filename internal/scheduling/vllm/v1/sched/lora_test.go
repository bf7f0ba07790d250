package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that at most MaxLoRAs adapters run at a time. A request that waits for its adapter must not delay other
// requests. vLLM counts only the adapters of the current step. If another adapter is used in a step that is still in
// flight, vLLM admits one adapter too many.
func TestAdaptersAreLimited(t *testing.T) {
	for _, tc := range []struct {
		name           string
		asVLLM, flight bool
		want           []int64
	}{
		{"in one step", false, false, []int64{1, 1, 0}},
		{"beside a row in flight", false, true, []int64{1, 1, 0}},
		{"as vLLM in one step", true, false, []int64{1, 1, 0}},
		{"as vLLM beside a row in flight", true, true, []int64{1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := small(60)
			c.MaxLoRAs, c.AsVLLM, c.MaxConcurrentBatches = 1, tc.asVLLM, 2
			h := newHost(t, c)
			lora := func(id int64) { h.add(4, 7, Spec{LoRAID: id}) }
			lora(1)
			if tc.flight {
				h.schedule()
			}
			for _, id := range []int64{2, 1, 0} {
				lora(id)
			}
			h.schedule()
			var got []int64
			for _, r := range h.running {
				got = append(got, r.loraID)
			}
			if tc.asVLLM && tc.flight {
				got = got[:2]
			}
			require.Equal(t, tc.want, got)
		})
	}
}
