package sizing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that money is right to the cent: a million tokens at the capacity, at a lower target, and what a
// change may cost.
func TestMoneyIsPriceByTokens(t *testing.T) {
	m := &Money{GPU: 0.78, Server: 1.56, tokens: 500}
	require.InDelta(t, 1.56/(2*500*3600/1e6), m.million(2), 1e-12)
	require.InDelta(t, 3*0.78/(0.5*500*3600/1e6), m.ofTarget(Server{GPUs: 3}, 0.5), 1e-12)
	require.InDelta(t, 0.39, m.worth(Change{Gain: 0.25}), 1e-12)
}
