package gradescope

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALimitIsRead(t *testing.T) {
	for text, want := range map[string]Limit{
		"10/24h": {10, 24 * time.Hour}, "3/90m": {3, 90 * time.Minute}, "5/2d": {5, 48 * time.Hour}, "1/1h30m": {1, 90 * time.Minute},
	} {
		l, err := parseLimit(text)
		require.NoError(t, err, text)
		require.Equal(t, want, l)
	}
	for _, text := range []string{"", "10", "10/", "/24h", "0/24h", "-1/24h", "10/24", "10/0h", "10/-1h", "ten/24h", "10/xd", "10/24h/2"} {
		_, err := parseLimit(text)
		require.ErrorIs(t, err, ErrLimit, text)
	}
	require.Equal(t, "10 within 24h", Limit{10, 24 * time.Hour}.String())
	require.Equal(t, "3 within 1h30m", Limit{3, 90 * time.Minute}.String())
	require.Equal(t, "3 within 1m30s", Limit{3, 90 * time.Second}.String())
}

func clock(minutes int) time.Time {
	return time.Date(2026, 11, 21, 12, minutes, 0, 0, time.FixedZone("", -8*3600))
}
