package experiment

import (
	"fmt"
	"math"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/cost"
)

// table1 checks the numbers of slots in the paper's Table 1: exactly for OPT-13B, and to 1 % for the other models.
func (b *bench) table1() error {
	const blockSize = 16
	t := targets.Model
	for _, m := range []struct {
		setup string
		slots int
		exact bool
	}{
		{"paper-opt-13b", t.Slots, true},
		{"paper-opt-66b", 9700, false},
		{"paper-opt-175b", 60100, false},
	} {
		s, err := cost.Open(m.setup)
		if err != nil {
			return err
		}
		blocks, _, err := s.Pool(blockSize)
		if err != nil {
			return err
		}
		slots := blocks * blockSize
		tolerance, ok := "exact", slots == m.slots && blocks == t.Blocks && s.LLM.KVBytesPerToken() == t.KVBytes
		if !m.exact {
			// Table 1 has two or three digits.
			tolerance, ok = "within 1 %", math.Abs(float64(slots-m.slots)) <= 0.01*float64(m.slots)
		}
		b.check(chart.Predicted, "Table 1, "+s.LLM.Name+", slots", fmt.Sprint(m.slots),
			fmt.Sprintf("%d (%d blocks of %d)", slots, blocks, blockSize), fmt.Sprintf("%+d", slots-m.slots), tolerance, ok)
	}
	return nil
}
