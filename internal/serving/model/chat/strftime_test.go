package chat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Templates of Llama 3.2 and Mistral Small contain today's date.
func TestStrftimeFormatsAsPythonDoes(t *testing.T) {
	// python3 -c "import datetime as d; print(d.datetime(2026,2,3,4,5,6).strftime(...))"
	moment := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, test := range []struct{ name, format, want string }{
		{"Llama 3.2", "%d %b %Y", "03 Feb 2026"},
		{"Mistral Small", "%Y-%m-%d", "2026-02-03"},
		{"names", "%A, %B %d, %a %y %j", "Tuesday, February 03, Tue 26 034"},
		{"a time", "%H:%M:%S %I %p", "04:05:06 04 AM"},
		{"a time zone, which Python's datetime.now() has not", "%H %Z%z", "04 "},
		{"a percent sign, and text that is a layout of Go", "%% 2006 Jan", "% 2006 Jan"},
	} {
		got, err := strftime(moment, test.format)
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, got, test.name)
	}
	for _, format := range []string{"%Q", "%"} {
		_, err := strftime(moment, format)
		require.ErrorIs(t, err, ErrTemplate, format)
	}
}

func TestATemplateKnowsTheDay(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"at once", `{{ strftime_now("%Y") }}`, time.Now().Format("2006")},
		{"if it is defined", `{% if strftime_now is defined %}{{ strftime_now("%%") }}{% endif %}`, "%"},
	} {
		tpl, err := New(test.source, nil)
		require.NoError(t, err, test.name)
		got, err := tpl.Render([]Message{{Role: "user", Content: "x"}}, true, nil)
		require.NoError(t, err, test.name)
		require.Contains(t, []string{test.want, time.Now().Format("2006")}, got, test.name)
	}
	tpl, err := New(`{{ strftime_now("%Q") }}`, nil)
	require.NoError(t, err)
	_, err = tpl.Render(nil, true, nil)
	require.ErrorContains(t, err, `strftime_now has the format "%Q"`)
}
