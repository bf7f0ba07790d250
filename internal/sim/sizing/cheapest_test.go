package sizing

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/testkit/level"
)

// Ensure that the cheapest offer comes first, is confirmed, and holds the
// target with what it costs.
func TestTheCheapestOfferComesFirst(t *testing.T) {
	level.SkipQuick(t)
	slo, err := capacity.ParseSLO("tpot<100ms")
	require.NoError(t, err)
	q := Question{Scenario: scenario.Scenario{Model: "llama-3-8b", Workload: "alpaca", Seed: 1}, SLO: slo, Seeds: 1,
		Precision: 0.2, Target: 3,
		Lasts: capacity.Horizon{Seconds: 120, Answers: 16}}
	prices := cost.Prices{Source: "a test", GPUs: map[string]cost.Price{"l4": {Dollars: 1, Watts: 72},
		"v100s-32gb": {Dollars: 30, Watts: 350}}}
	all, err := Cheapest(context.Background(), q, []string{"v100s-32gb", "l4", "mi300x"}, prices)
	require.NoError(t, err)
	best := all[0]
	require.Equal(t, "l4", best.GPU)
	require.True(t, best.Confirmed)
	require.GreaterOrEqual(t, float64(best.Servers)*best.Rate, 3.0)
	require.InEpsilon(t, float64(best.GPUs), best.Hour, 1e-9)
	require.InEpsilon(t, best.Hour/(3*3600*best.tokens)*1e6, best.Million, 1e-9)
	for i := 1; i < len(all) && all[i].Trouble == ""; i++ {
		require.GreaterOrEqual(t, all[i].Hour, best.Hour)
	}
	last := all[len(all)-1]
	require.Equal(t, "mi300x", last.GPU)
	require.Contains(t, last.Trouble, "no price")
	var out bytes.Buffer
	require.NoError(t, WriteOffers(&out, q, all, prices))
	require.Contains(t, out.String(), "an hour for 3.00 requests/s")
	require.Contains(t, out.String(), "vllm 0.10-0.20 on l4: not fitted on this GPU", "what the times of the answer are from")
	require.Regexp(t, `1 x l4 .* vllm-0.10-0.20  confirmed`, out.String())
	require.Regexp(t, `1 x v100s-32gb .* vllm-0.7.3 +from shorter runs`, out.String())
	require.Contains(t, out.String(), "times       of several engines")
	require.LessOrEqual(t, best.HourLow, best.Hour)
	require.GreaterOrEqual(t, best.HourHigh, best.Hour)
	require.Contains(t, out.String(), best.within("%.3f", best.KWh), "energy has the range of money")
	require.Equal(t, 1, strings.Count(out.String(), "no price"), "said once, whatever the number of GPUs in a server")
}

func TestCheapestNeedsATarget(t *testing.T) {
	slo, err := capacity.ParseSLO("1s/token")
	require.NoError(t, err)
	_, err = Cheapest(context.Background(), Question{SLO: slo}, []string{"l4"}, cost.Prices{})
	require.ErrorIs(t, err, scenario.ErrScenario)
	_, err = Cheapest(context.Background(), Question{Target: 1}, []string{"l4"}, cost.Prices{})
	require.ErrorIs(t, err, capacity.ErrSLO)
}

func TestOfEquallyDearOffersThatWhichHoldsMoreComesFirst(t *testing.T) {
	two := Offer{GPUs: 4, Hour: 8, Servers: 2, Rate: 4}
	one := Offer{GPUs: 4, Hour: 8, Servers: 1, Rate: 10}
	require.Positive(t, dearer(two, one))
	require.Negative(t, dearer(one, two))
	require.Negative(t, dearer(two, Offer{GPUs: 4, Hour: 9, Servers: 1, Rate: 100}), "money first")
	require.Negative(t, dearer(two, Offer{Trouble: NoPrice}))
}
