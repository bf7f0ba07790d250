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

func at(minutes int) time.Time {
	return time.Date(2026, 11, 21, 12, minutes, 0, 0, time.FixedZone("", -8*3600))
}

func times(minutes ...int) (all []time.Time) {
	for _, m := range minutes {
		all = append(all, at(m))
	}
	return all
}

func TestALimitIsReached(t *testing.T) {
	l := Limit{2, 10 * time.Minute}
	for name, c := range map[string]struct {
		before  []time.Time
		at      int
		refused bool
		next    int
	}{
		"the first":                {nil, 20, false, 0},
		"the second":               {times(19), 20, false, 0},
		"one too many":             {times(15, 19), 20, true, 25},
		"the older one decides":    {times(1, 15, 19), 20, true, 25},
		"just too early":           {times(11, 19), 20, true, 21},
		"as soon as it is allowed": {times(10, 19), 20, false, 0},
	} {
		next, refused := l.reached(at(c.at), c.before)
		require.Equal(t, c.refused, refused, name)
		if refused {
			require.Equal(t, at(c.next), next, name)
		}
	}
	_, refused := Limit{}.reached(at(0), times(0, 0, 0))
	require.False(t, refused, "no limit")
}

func TestWhatCountsTowardsALimit(t *testing.T) {
	l := Limit{2, 10 * time.Minute}
	for name, c := range map[string]struct {
		previous []previous
		want     []time.Time
	}{
		"all":                       {[]previous{{Time: at(1)}, {Time: at(2)}}, times(1, 2)},
		"no trouble of the grader":  {[]previous{{Time: at(1), Errored: true}, {Time: at(2)}}, times(2)},
		"what was graded counts":    {[]previous{{Time: at(1), Results: &Results{Extra: &Extra{Counts: true}}}}, times(1)},
		"what was not does not":     {[]previous{{Time: at(1), Results: &Results{Extra: &Extra{}}}}, nil},
		"the latest knows of them":  {[]previous{{Time: at(1)}, {Time: at(2)}, {Time: at(3), Results: &Results{Extra: &Extra{Counts: true, Uncounted: times(1, 2)}}}}, times(3)},
		"results of another grader": {[]previous{{Time: at(1), Results: &Results{}}}, times(1)},
		"refused ones by themselves": {[]previous{{Time: at(1)}, {Time: at(2)}, {Time: at(3)}, {Time: at(10)},
			{Time: at(11)}}, times(1, 2, 11)},
	} {
		require.Equal(t, c.want, l.counted(&metadata{Previous: c.previous}), name)
	}
}
