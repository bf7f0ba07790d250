package workload

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// maxTokens is the highest allowed length of a prompt or output. It limits memory: the tokens of a request
// are created before a scheduler can refuse the request.
const maxTokens = 1 << 24

func (f *format) seconds(text []byte) (float64, error) {
	column, want := f.columns[0], "seconds, at least 0"
	switch f.clock {
	case dateClock:
		date, err := parseDate(text)
		if err != nil {
			return 0, bad(column, text, "is not a time", "one like 2023-11-16 18:15:46.6805900")
		}
		// As float64, seconds since 2020 have a precision of 60 ns until 2036. That suffices for Azure's times,
		// which have a precision of 100 ns.
		return float64(date.Unix()-epoch2020) + float64(date.Nanosecond())/1e9, nil
	case millisecondsClock:
		want = "milliseconds, at least 0"
	}
	v, err := strconv.ParseFloat(string(text), 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || math.IsInf(v, 0):
		return 0, bad(column, text, "is too large", want)
	case err != nil || math.IsNaN(v):
		return 0, bad(column, text, "is not a number", want)
	case v < 0:
		return 0, bad(column, text, "is negative", want)
	case f.clock == millisecondsClock:
		v /= 1000
	}
	return v, nil
}

const epoch2020 = 1577836800

// tokens parses the length in column i. A length of 0 is allowed only in the log of a server, where such a
// row is skipped.
func (f *format) tokens(i int, text []byte) (int, error) {
	minimum := 1
	if f.log {
		minimum = 0
	}
	n, err := strconv.Atoi(string(text)) // returns the nearest int if the number is out of range
	if err == nil && minimum <= n && n <= maxTokens {
		return n, nil
	}
	problem := "is too small"
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		problem = "is not a whole number"
	case n < 0:
		problem = "is negative"
	case n > maxTokens:
		problem = "is too large"
	}
	return 0, bad(f.columns[i], text, problem, fmt.Sprintf("a whole number of tokens from %d to %d", minimum, maxTokens))
}

// bad returns an error about a value of a column. problem is a verb phrase such as "is negative", and want
// describes the accepted values.
func bad(column string, text []byte, problem, want string) error {
	if len(text) == 0 {
		return fmt.Errorf("column %q is empty; wanted %s", column, want)
	}
	return fmt.Errorf("column %q: %s %s; wanted %s", column, excerpt(text), problem, want)
}
