//go:build amd64 && !purego

package amx

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a product that is wrong in one bit of one number is not taken for right.
func TestAProductIsRightOnlyIfAllOfItIs(t *testing.T) {
	for _, product := range []func(c, a, b *Tile, s Shape){ProductInt8, ProductBF16} {
		compute := func(_ *Config, c, a, b *Tile) { product(c, a, b, Shape{16, 16, 16}) }
		require.True(t, right(compute, product))
		require.False(t, right(func(config *Config, c, a, b *Tile) {
			compute(config, c, a, b)
			c[15][60]++
		}, product))
		require.False(t, right(func(_ *Config, c, a, b *Tile) { *c = Tile{}; product(c, a, b, Shape{16, 16, 16}) }, product),
			"the second product is not added")
	}
	require.False(t, right(func(_ *Config, c, a, b *Tile) { ProductInt8(c, a, b, Shape{16, 16, 16}) }, ProductBF16))
	require.Equal(t, Features{}, Features{}.tried(), "a product that the processor has not is not tried")
}

// Ensure that Linux is not asked if AMX is forbidden, and that no tile instruction is executed if Linux refuses: it
// would end this process.
func TestTilesAreTriedOnlyWithPermission(t *testing.T) {
	asked := 0
	for _, test := range []struct {
		name     string
		settings map[string]string
		asked    int
	}{
		{"forbidden", map[string]string{Environment: WithoutAMX, testVariable: "1"}, 0},
		{"refused", map[string]string{testVariable: "1"}, 1},
		{"refused to a processor as it is", nil, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked = 0
			usable := detect(func(name string) string { return test.settings[name] }, func() bool { asked++; return false })
			require.Equal(t, Features{}, usable)
			require.Equal(t, test.asked, asked)
		})
	}
}

// Ensure that the process survives the search for tiles, that the environment variable forbids them, and that
// without permission from Linux there are none, whatever the processor is said to have.
func TestUsableNeedsPermission(t *testing.T) {
	if os.Getenv(asProcess) != "" {
		if Usable() == (Features{}) {
			os.Exit(none)
		}
		os.Exit(0)
	}
	for _, test := range []struct {
		name, variable string
		want           bool
	}{
		{"as it is", testVariable + "=0", detect(func(string) string { return "" }, permitted) != (Features{})},
		{"said to have tiles", testVariable + "=1", permitted()},
		{"forbidden", Environment + "=" + WithoutAMX, false},
	} {
		c := exec.Command(os.Args[0], "-test.run", "TestUsableNeedsPermission")
		c.Env = append(os.Environ(), asProcess+"=1", Environment+"=", test.variable)
		out, err := c.CombinedOutput()
		code := c.ProcessState.ExitCode()
		require.Contains(t, []int{0, none}, code, "%s: %v: %s", test.name, err, out)
		require.Equal(t, test.want, code == 0, "%s: %s", test.name, out)
	}
}

const (
	asProcess = "LLMSERVE_TEST_PROCESS"
	none      = 3
)
