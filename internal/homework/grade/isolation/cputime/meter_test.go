package cputime_test

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/testkit/level"
)

// A fake replaces a process and the machine. The test chooses what a Meter measures.
type fake struct {
	used     cputime.Usage
	slowness float64
	clock    time.Time
	measures int
}

func (f *fake) meter(process time.Duration) *cputime.Meter {
	m := cputime.NewMeter(0, process)
	f.clock = time.Unix(1e9, 0)
	m.Usage = func() (cputime.Usage, error) { return f.used, nil }
	m.Slowness = func() (float64, error) { f.measures++; return max(1, f.slowness), nil }
	m.Now = func() time.Time { return f.clock }
	return m
}

func (f *fake) run(clock time.Duration, used cputime.Usage) {
	f.clock = f.clock.Add(clock)
	f.used.CPU += used.CPU
	f.used.Faults += used.Faults
	f.used.Asleep = used.Asleep
}

const (
	callLimit    = 2 * time.Second
	processLimit = 8 * time.Second
)

// Ensure that the verdict depends on processor time and on the slowness of the machine, but not on elapsed time.
func TestACallThatComesBack(t *testing.T) {
	const second = time.Second
	for name, c := range map[string]struct {
		used     cputime.Usage
		slowness float64
		err      error
	}{
		"nothing":                     {cputime.Usage{}, 1, nil},
		"all right":                   {cputime.Usage{CPU: second / 3}, 1, nil},
		"too slow to be judged":       {cputime.Usage{CPU: second}, 1, cputime.ErrSlow},
		"over the limit":              {cputime.Usage{CPU: 3 * second}, 1, cputime.ErrTime},
		"all right on a slow machine": {cputime.Usage{CPU: 3 * second}, 10, nil},
		"too slow to be judged on a slow machine":  {cputime.Usage{CPU: 7 * second}, 10, cputime.ErrSlow},
		"over the limit on a slow machine":         {cputime.Usage{CPU: 30 * second}, 10, cputime.ErrTime},
		"192 MiB where a fault takes 16 us":        {cputime.Usage{CPU: 800 * time.Millisecond, Faults: 49152}, 1, nil},
		"192 MiB where a fault takes 100 us":       {cputime.Usage{CPU: 5 * second, Faults: 49152}, 1, nil},
		"192 MiB where everything takes ten times": {cputime.Usage{CPU: 50 * second, Faults: 49152}, 10, nil},
		"few faults in much time":                  {cputime.Usage{CPU: 3 * second, Faults: 1000}, 1, cputime.ErrTime},
		"too many faults":                          {cputime.Usage{CPU: 3 * second, Faults: 1 << 19}, 1, cputime.ErrTime},
		"too many faults, however slow it is":      {cputime.Usage{CPU: 3 * second, Faults: 1 << 19}, 100, cputime.ErrTime},
		"half of the faults, however fast it is":   {cputime.Usage{CPU: second / 10, Faults: 1 << 18}, 1, cputime.ErrSlow},
	} {
		for _, clock := range []time.Duration{60 * time.Millisecond, time.Hour} {
			t.Run(name+" in "+clock.String(), func(t *testing.T) {
				f := fake{slowness: c.slowness}
				m := f.meter(1000 * time.Second)
				m.Begin(callLimit)
				f.run(clock, c.used)
				if err := m.End(); c.err != nil {
					require.ErrorIs(t, err, c.err)
				} else {
					require.NoError(t, err)
					require.NoError(t, m.Close())
				}
			})
		}
	}
}

// Ensure that the same call is not accepted in one run and over its limit in another, if the processor times of the two
// runs differ by less than a factor of four. The call may be too slow to be judged (ErrSlow) in any of the runs.
func TestNoMeasureTurnsAllRightIntoOverTheLimit(t *testing.T) {
	for work := 10 * time.Millisecond; work < 20*time.Second; work = work * 5 / 4 {
		seen := map[error]bool{}
		for _, factor := range []float64{0.5, 0.7, 1, 1.4, 1.99} {
			f := fake{}
			m := f.meter(1000 * time.Second)
			m.Begin(callLimit)
			f.run(time.Minute, cputime.Usage{CPU: time.Duration(float64(work) * factor)})
			err := m.End()
			for _, kind := range []error{nil, cputime.ErrTime} {
				seen[kind] = seen[kind] || errors.Is(err, kind)
			}
		}
		require.False(t, seen[nil] && seen[cputime.ErrTime], "%v", work)
	}
}

// look calls Look until it returns an error, and returns the number of calls and the error.
func look(t *testing.T, f *fake, m *cputime.Meter, each cputime.Usage) (int, error) {
	t.Helper()
	for n := 1; n <= 1000; n++ {
		f.run(cputime.LookEvery, each)
		if err := m.Look(); err != nil {
			return n, err
		}
	}
	t.Fatal("it is looked at for ever")
	return 0, nil
}

func TestACallThatDoesNotComeBack(t *testing.T) {
	const millisecond = time.Millisecond
	for name, c := range map[string]struct {
		each     cputime.Usage // from look to look
		slowness float64
		err      error
		looks    int
	}{
		"a loop":                               {cputime.Usage{CPU: 1000 * millisecond}, 1, cputime.ErrTime, 2},
		"a loop on a busy machine":             {cputime.Usage{CPU: 50 * millisecond}, 1, cputime.ErrTime, 40},
		"a loop on a slow and busy machine":    {cputime.Usage{CPU: 100 * millisecond}, 5, cputime.ErrTime, 100},
		"a loop of page faults":                {cputime.Usage{CPU: 1000 * millisecond, Faults: 90_000}, 1, cputime.ErrTime, 6},
		"it sleeps":                            {cputime.Usage{Asleep: true}, 1, cputime.ErrTime, 10},
		"it sleeps, and wakes up":              {cputime.Usage{CPU: millisecond, Asleep: true}, 1, cputime.ErrTime, 300},
		"it gets no processor":                 {cputime.Usage{}, 1, cputime.ErrStarved, 300},
		"it gets next to none":                 {cputime.Usage{CPU: millisecond}, 1, cputime.ErrStarved, 300},
		"a loop where nothing can be measured": {cputime.Usage{CPU: 100 * millisecond}, 1e9, cputime.ErrStarved, 300},
	} {
		t.Run(name, func(t *testing.T) {
			f := fake{slowness: c.slowness}
			m := f.meter(processLimit)
			m.Begin(callLimit)
			looks, err := look(t, &f, m, c.each)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.looks, looks)
		})
	}
}

func TestAGraderThatIsStoppedSeesNothing(t *testing.T) {
	f := fake{}
	m := f.meter(processLimit)
	m.Begin(callLimit)
	for range 9 {
		f.run(time.Hour, cputime.Usage{Asleep: true})
		require.NoError(t, m.Look())
	}
	f.run(time.Hour, cputime.Usage{CPU: time.Millisecond})
	require.NoError(t, m.Look())
	require.NoError(t, m.End())
}

// Ensure that a process fails if it exceeds the limit for all calls together, although each of its calls is short. The
// time of one call must not count for the next.
func TestManyCalls(t *testing.T) {
	f := fake{}
	m := f.meter(processLimit)
	calls := 0
	var err error
	for ; err == nil; calls++ {
		m.Begin(callLimit)
		f.run(40*time.Millisecond, cputime.Usage{CPU: 40 * time.Millisecond})
		err = m.End()
	}
	require.ErrorIs(t, err, cputime.ErrTime)
	require.ErrorContains(t, err, "all calls together")
	require.Equal(t, 200, calls)
	require.Less(t, f.measures, 20)

	for _, c := range []struct {
		calls int
		err   error
	}{{30, nil}, {100, cputime.ErrSlow}} {
		f := fake{}
		m := f.meter(processLimit)
		for range c.calls {
			m.Begin(callLimit)
			f.run(40*time.Millisecond, cputime.Usage{CPU: 40 * time.Millisecond})
			require.NoError(t, m.End())
		}
		require.ErrorIs(t, m.Close(), c.err)
	}
}

func TestARealProcessIsWatched(t *testing.T) {
	level.SkipQuick(t) // a launcher is compiled
	for _, c := range []struct {
		name, script string
		verdict      error
	}{
		{"it ends", "exit 0", nil},
		{"it waits", "read line", cputime.ErrTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", c.script)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			defer in.Close()
			require.NoError(t, cmd.Start())
			watch := cputime.Start(cmd.Process.Pid, time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			killed, verdict := watch.Stop(cmd.ProcessState)
			require.ErrorIs(t, verdict, c.verdict)
			require.Equal(t, c.verdict != nil, killed)
		})
	}
}
