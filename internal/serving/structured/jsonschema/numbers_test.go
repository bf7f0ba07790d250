package jsonschema

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

func newMeter() *meter.Meter {
	return meter.New(context.Background(), meter.Limits{Work: 10_000_000, Bytes: 1 << 30, Depth: 1000})
}

// numbersOf returns a function that reports whether a schema allows a number.
func numbersOf(t require.TestingT, schema string) func(text string) bool {
	c, root, err := newCompiler([]byte(schema), newMeter())
	require.NoError(t, err, schema)
	s, err := c.shape(root)
	require.NoError(t, err, schema)
	var all []*automaton.DFA
	for i := range s.numbers {
		d, err := s.numbers[i].automaton(c.budget)
		require.NoError(t, err, schema)
		all = append(all, d)
	}
	return func(text string) bool {
		for _, d := range all {
			if d.Match(text) != automaton.None {
				return true
			}
		}
		return false
	}
}

// numberKeyword is a keyword that limits numbers, with its exact meaning.
type numberKeyword struct {
	json   string
	bound  string
	allows func(x, bound *big.Rat) bool
}

func numberKeywords(bound string) []numberKeyword {
	return []numberKeyword{
		{`"minimum": ` + bound, bound, func(x, b *big.Rat) bool { return x.Cmp(b) >= 0 }},
		{`"exclusiveMinimum": ` + bound, bound, func(x, b *big.Rat) bool { return x.Cmp(b) > 0 }},
		{`"maximum": ` + bound, bound, func(x, b *big.Rat) bool { return x.Cmp(b) <= 0 }},
		{`"exclusiveMaximum": ` + bound, bound, func(x, b *big.Rat) bool { return x.Cmp(b) < 0 }},
		{`"not": {"const": ` + bound + `}`, bound, func(x, b *big.Rat) bool { return x.Cmp(b) != 0 }},
		{`"not": {"minimum": ` + bound + `}`, bound, func(x, b *big.Rat) bool { return x.Cmp(b) < 0 }},
		{`"not": {"type": "integer"}`, bound, func(x, b *big.Rat) bool { return !x.IsInt() }},
		{`"type": "integer"`, bound, func(x, b *big.Rat) bool { return x.IsInt() }},
		{`"multipleOf": 0.5`, "0.5", func(x, b *big.Rat) bool { return new(big.Rat).Quo(x, b).IsInt() }},
		{`"not": {"multipleOf": 3}`, "3", func(x, b *big.Rat) bool { return !new(big.Rat).Quo(x, b).IsInt() }},
	}
}

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	fractional = regexp.MustCompile(`[eE]-0*[1-9]`)
	scientific = regexp.MustCompile(`^-?([1-9](\.[0-9]+)?|0(\.0+)?)[eE]`)
)

// spelled reports whether numbers with the given keywords may be written as text is, whatever its value.
func spelled(keywords []numberKeyword, text string) bool {
	exponent := strings.ContainsAny(text, "eE")
	for _, k := range keywords {
		bound, _ := new(big.Rat).SetString(k.bound)
		switch {
		case k.json == `"type": "integer"`:
			if exponent || strings.Contains(text, ".") {
				return false
			}
		case strings.Contains(k.json, "multipleOf"):
			if exponent {
				return false
			}
		case k.json == `"not": {"type": "integer"}`:
			if exponent && !(scientific.MatchString(text) && fractional.MatchString(text)) {
				return false
			}
		case exponent && bound.Sign() != 0 && !scientific.MatchString(text):
			return false
		}
	}
	return true
}

// mixed reports whether one of two bounds is 0.
func mixed(keywords []numberKeyword) bool {
	zero, other := false, false
	for _, k := range keywords {
		if strings.Contains(k.json, "imum") {
			bound, _ := new(big.Rat).SetString(k.bound)
			zero, other = zero || bound.Sign() == 0, other || bound.Sign() != 0
		}
	}
	return zero && other
}

// Ensure that a number is accepted if and only if its exact value satisfies the keywords, in each spelling that the
// manual lists.
func TestNumbersAreComparedExactly(t *testing.T) {
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?0{0,2}[0-9]{1,2})?`)
	bounds := rapid.OneOf(digits, rapid.SampledFrom([]string{"0", "-0.0", "1", "-1", "0.5", "1e-6", "1e5", "-2.5e-3", "123.25", "1e300", "1e-300", "9.99"}))
	rapid.Check(t, func(t *rapid.T) {
		bound := bounds.Draw(t, "bound")
		all := numberKeywords(bound)
		chosen := []numberKeyword{rapid.SampledFrom(all).Draw(t, "first")}
		if rapid.Bool().Draw(t, "two") {
			chosen = append(chosen, rapid.SampledFrom(numberKeywords(bounds.Draw(t, "second bound"))).Draw(t, "second"))
		}
		parts := []string{}
		for _, k := range chosen {
			parts = append(parts, "{"+k.json+"}")
		}
		schema := `{"allOf": [` + strings.Join(parts, ", ") + `]}`
		allows := numbersOf(t, schema)
		exact, _ := new(big.Rat).SetString(bound)
		near := []string{bound, strings.ToUpper(bound), "-" + bound, bound + "0", exact.FloatString(8), "0", "-0", "-0.0", "0e5", "-0.0E-3", "1e-06", "1e5", "5e-324", "1.7976931348623157e+308"}
		if f, _ := exact.Float64(); f != 0 {
			near = append(near, fmt.Sprintf("%.3e", f), fmt.Sprintf("%e", f*1.0001), fmt.Sprintf("%e", f/1.0001), fmt.Sprintf("%E", -f))
		}
		text := rapid.OneOf(digits, rapid.SampledFrom(near)).Draw(t, "text")
		if !jsonNumber.MatchString(text) {
			t.Skip("not a number")
		}
		x, ok := new(big.Rat).SetString(text)
		require.True(t, ok)
		if strings.ContainsAny(text, "eE") && !scientific.MatchString(text) && mixed(chosen) {
			t.Skip("the bound 0 can replace the other one, and does not limit how the number is written")
		}
		want := spelled(chosen, text)
		for _, k := range chosen {
			b, _ := new(big.Rat).SetString(k.bound)
			want = want && k.allows(x, b)
		}
		require.Equal(t, want, allows(text), "%s: %s", schema, text)
	})
}

// Ensure that digits which are beyond a bound are allowed where an exponent can make the number smaller.
func TestAnExponentBringsANumberWithinItsBounds(t *testing.T) {
	allows := numbersOf(t, `{"minimum": -0.25, "maximum": 0.5}`)
	for text, want := range map[string]bool{"5e-1": true, "-2.5e-1": true, "7.25e-06": true, "6e-1": false, "-3e-1": false, "1e0": false, "1": false, "0.51": false} {
		require.Equal(t, want, allows(text), text)
	}
}

// Ensure that a number ends with the decimals that its bounds allow, where no exponent may follow.
func TestDecimalsAtABound(t *testing.T) {
	allows := numbersOf(t, `{"minimum": -5, "maximum": 5.5, "multipleOf": 0.5}`)
	for text, want := range map[string]bool{"5.5": true, "5.0": true, "-5.0": true, "-4.5": true, "6.0": false, "-5.5": false} {
		require.Equal(t, want, allows(text), text)
	}
}

// Ensure that what is not a JSON number is never accepted.
func TestOnlyJSONNumbersAreAccepted(t *testing.T) {
	alphabet := rapid.StringOfN(rapid.SampledFrom([]rune("-+.eE0123")), 1, 7, -1)
	for _, schema := range []string{`{"minimum": 0}`, `{"maximum": -3.5}`, `{"minimum": -1, "maximum": 1}`, `{"not": {"type": "integer"}}`, `{"enum": [1e-7, 1e20]}`} {
		allows := numbersOf(t, schema)
		rapid.Check(t, func(t *rapid.T) {
			text := alphabet.Draw(t, "text")
			require.False(t, allows(text) && !jsonNumber.MatchString(text), "%s: %s", schema, text)
		})
	}
}

// Ensure that a constant may be written as the schema does, as Python's json and as JavaScript do.
func TestSpellingsOfConstants(t *testing.T) {
	for _, test := range []struct{ schema, allowed, forbidden string }{
		{`{"const": 0.000001}`, "0.000001 1e-06 1e-6", "1e-6.0 1.0e-06 1e-5 -1e-06 1e-006"},
		{`{"const": 1e-06}`, "0.000001 1e-06 1e-6", "1E-6 0.00001"},
		{`{"enum": [12e20, -1.5e-9]}`, "12e20 1200000000000000000000 1.2e+21 -1.5e-09 -1.5e-9 -0.0000000015", "1.2e21 1.5e-09"},
		{`{"const": 0.0001}`, "0.0001", "1e-04 1e-4"},
		{`{"const": -0.0}`, "0 -0.0", "-0 0.0"},
		{`{"type": "integer", "const": 1e20}`, "100000000000000000000", "1e20 1e+20 100000000000000000000.0"},
		{`{"enum": [1e-7, 5, 7], "maximum": 5}`, "1e-7 1e-07 5", "7 5.0"},
		{`{"enum": [1e-7, 5], "not": {"const": 0.5e1}}`, "1e-07", "5"},
	} {
		allows := numbersOf(t, test.schema)
		for _, text := range strings.Fields(test.allowed) {
			require.True(t, allows(text), "%s: %s", test.schema, text)
		}
		for _, text := range strings.Fields(test.forbidden) {
			require.False(t, allows(text), "%s: %s", test.schema, text)
		}
	}
}

// Ensure that the negation of a negation allows what the schema inside does, and no empty text.
func TestANumberNegatedTwice(t *testing.T) {
	for _, negation := range []string{`"not": {"not": {"const": 5}}`, `"not": {"type": "number", "not": {"enum": [5]}}`} {
		allows := numbersOf(t, `{"type": "number", `+negation+`}`)
		require.True(t, allows("5"))
		require.False(t, allows(""), negation)
		require.False(t, allows("6"))
	}
}
