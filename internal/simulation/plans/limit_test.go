package plans

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/capacity"
)

func TestSettingsThatGainAreNamedBesideTheLimit(t *testing.T) {
	gpu := Change{Name: "twice the GPU's memory bandwidth", Kind: Time, Gain: 1, GainLow: 1, GainHigh: 1}
	memory := Change{Name: "twice the KV memory", Kind: KVMemory}
	at := func(gain, low float64) Change {
		return Change{Name: "twice --max-seqs", Kind: Sequences, Gain: gain, GainLow: low, GainHigh: gain}
	}
	for _, c := range []struct {
		name, limit, want string
		limits            []Change
	}{
		{"the setting gains less", gpu.Name,
			"limited by iteration time, not memory: twice the GPU's memory bandwidth gives +100 %; twice the KV memory " +
				"gives +0 %; twice --max-seqs, a setting, gives +80 %", []Change{gpu, at(0.8, 0.7), memory}},
		{"not under every seed", gpu.Name,
			"limited by iteration time, not memory: twice the GPU's memory bandwidth gives +100 %; twice the KV memory " +
				"gives +0 %", []Change{gpu, at(0.8, 0.01), memory}},
		{"the setting is the limit", "twice --max-seqs",
			"limited by sequences at once: twice --max-seqs gives +120 %; twice the KV memory gives +0 %",
			[]Change{at(1.2, 1.2), gpu, memory}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Report{Limit: c.limit, Limits: c.limits, Capacity: capacity.Capacity{Precision: 0.02}}
			require.Equal(t, c.want, r.text("limit"))
		})
	}
}
