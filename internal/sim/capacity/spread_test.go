package capacity

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/testkit/level"
)

// Ensure that the answers of TestAPlanLastsForAnHour which hold at 1.1 times their rate, too, are no
// mistake of the plan: there no rate holds in all five hours and fails in most of them a tenth above. Of
// the five hours' limits the least is the highest rate that all hold, and above the third most fail.
func TestWhereHoursDifferByATenthNoRateIsBoth(t *testing.T) {
	if !level.Long() {
		t.Skip("LLM_TEST_LONG=1 only")
	}
	for _, c := range []struct {
		name     string
		scenario scenario.Scenario
	}{
		{"llama-3-8b on an L4", scenario.Scenario{Model: "llama-3-8b", GPU: "l4", Requests: 300}},
		{"opt-13b on an A100", scenario.Scenario{Model: "opt-13b", GPU: "a100-40gb"}},
		{"opt-13b on two L4", scenario.Scenario{Model: "opt-13b", GPU: "l4", Workers: 2}},
	} {
		for _, text := range objectives {
			t.Run(c.name+", "+text, func(t *testing.T) {
				objective := slo(t, text)
				found, err := promised(t, c.scenario, objective)
				require.NoError(t, err)
				limits := hourLimits(t, c.scenario, objective, found.Rate)
				t.Logf("answer %.3g, all hold up to %.3g, most fail above %.3g: %.2f times; limits %.3g", found.Rate, limits[0], limits[2], limits[2]/limits[0], limits)
			})
		}
	}
}

// hourLimits are the highest rates that last for an hour under the five seeds that no plan has seen, to
// 1 %, from the least.
func hourLimits(t *testing.T, s scenario.Scenario, objective SLO, near float64) []float64 {
	s.Duration, s.Requests = 3600, 0
	var limits []float64
	for s.Seed = 1000; s.Seed < 1005; s.Seed++ {
		holds := func(rate float64) bool {
			s.Rate = rate
			return hourHolds(t, s, objective)
		}
		low, high := near/1.1, near*1.1
		for !holds(low) {
			low, high = low/1.1, low
		}
		for holds(high) {
			low, high = high, high*1.1
		}
		for high > 1.01*low {
			if middle := math.Sqrt(low * high); holds(middle) {
				low = middle
			} else {
				high = middle
			}
		}
		limits = append(limits, low)
	}
	slices.Sort(limits)
	return limits
}
