package jsonschema

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/testkit/level"
)

// compileWork is the work that the server allows.
const compileWork = 1_000_000

var repeated = regexp.MustCompile(`<<(.*?)>>|\(\((.*?)\)\)`)

// schemaOf returns the schema of a kind in testdata/kinds.txt.
func schemaOf(kind string, n int) string {
	text := repeated.ReplaceAllStringFunc(kind, func(part string) string {
		inner := part[2 : len(part)-2]
		items := make([]string, n)
		for i := range items {
			number := func(i int) string { return fmt.Sprintf("%05d", i) }
			items[i] = strings.NewReplacer("%i", number(i), "%j", number(n-1-i), "%k", number(i+1)).Replace(inner)
		}
		if part[0] == '<' {
			return strings.Join(items, ",")
		}
		return strings.Join(items, "")
	})
	return strings.NewReplacer("%n", fmt.Sprint(n), "%m", fmt.Sprintf("%05d", n)).Replace(text)
}

// compileWithin compiles a schema, or finds out why no value satisfies it. It returns the work and the bytes that it has
// allocated.
func compileWithin(schema string, work int) (spent, bytes int, err error) {
	var before, after runtime.MemStats
	m := meter.New(context.Background(), meter.Limits{Work: work, Bytes: 1 << 28, Depth: 1000})
	runtime.ReadMemStats(&before)
	g, err := Compile([]byte(schema), false, 16, m)
	if err == nil && !g.Trim() {
		err = Contradiction([]byte(schema), m)
	}
	runtime.ReadMemStats(&after)
	return m.Spent(), int(after.TotalAlloc - before.TotalAlloc), err
}

// named reports whether an error says which limit was reached and where.
func named(err error) bool {
	var large *TooLarge
	var unsupported *Unsupported
	return errors.As(err, &large) && large.Keyword != "" && large.Size != "" || errors.As(err, &unsupported) ||
		strings.Contains(err.Error(), "values nest deeper than 256")
}

// Ensure that the work and the memory for a schema grow like its size, or that a limit refuses the schema. The limit and
// the keyword are named. Only make test-long doubles until the limit.
func TestWorkIsLinearOrRefused(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "kinds.txt"))
	require.NoError(t, err)
	first := 64
	if level.Long() {
		first = 128
	}
	for kind := range strings.Lines(string(text)) {
		if kind = strings.TrimSpace(kind); kind[0] == '#' {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			const linearDoublings = 2
			lastSpent, lastBytes, lastSize, linear, refused := 0, 0, 0, 0, false
			for n := first; linear < linearDoublings; n *= 2 {
				if n > 4*first && !refused && !level.Long() {
					return
				}
				require.LessOrEqual(t, n, 1<<18, "neither linear nor refused: %d", lastSpent)
				schema := schemaOf(kind, n)
				require.LessOrEqual(t, len(schema), maxBytes, "the work grew faster than the size up to here: %d", lastSpent)
				spent, bytes, err := compileWithin(schema, compileWork)
				require.Less(t, bytes, 300<<20, "what is refused takes little memory, too")
				if err != nil {
					require.True(t, named(err), "%v", err)
					require.Less(t, len(err.Error()), 1000+len(schema), "%v", err)
				}
				var unsupported *Unsupported
				if err != nil && !(errors.As(err, &unsupported) && strings.HasPrefix(unsupported.Reason, "no value")) {
					if refused = refused || n > 1024 || !level.Long(); refused {
						return
					}
					refused, n = true, 8*n // a much larger one is refused as well
					continue
				}
				growth := float64(len(schema)) / float64(max(1, lastSize))
				if grows := 1.3 * max(growth, 2); n > first && float64(spent) <= grows*float64(lastSpent)+500 && float64(bytes) <= grows*float64(lastBytes)+100_000 {
					linear++
				}
				lastSpent, lastBytes, lastSize = spent, bytes, len(schema)
			}
		})
	}
}

// Ensure that an empty meter refuses each kind of schema, with an error that says so.
func TestAnEmptyMeterIsAnError(t *testing.T) {
	for _, schema := range []string{`{}`, `true`, `{"enum": []}`, `{"required": ["a"]}`, `{"properties": {"a": {"minimum": 1}}}`} {
		_, _, err := compileWithin(schema, 0)
		require.ErrorIs(t, err, meter.ErrTooLarge, schema)
	}
}

// Ensure that steps of multipleOf whose remainders are too many together are refused before they take work or memory, and
// that the limit is for the least common multiple of the steps, not for their product.
func TestTooManyRemaindersAreRefusedAtOnce(t *testing.T) {
	for _, schema := range []string{
		`{"type":"integer","allOf":[{"multipleOf":19997},{"multipleOf":19993},{"multipleOf":19991}]}`,
		`{"type":"number","allOf":[{"multipleOf":0.19997},{"multipleOf":19993}],"minimum":3}`,
		`{"type":"integer","allOf":[{"not":{"multipleOf":19997}},{"not":{"multipleOf":19993}}]}`,
		`{"type":"integer","allOf":[{"multipleOf":997},{"multipleOf":1009}],"maximum":100}`,
		`{"type":"integer","allOf":[{"multipleOf":997},{"multipleOf":1009}],"minimum":-1000000,"maximum":100}`,
		`{"type":"number","allOf":[{"multipleOf":0.997},{"multipleOf":0.1009}],"minimum":0,"maximum":100000000}`,
	} {
		spent, bytes, err := compileWithin(schema, compileWork)
		require.ErrorIs(t, err, meter.ErrTooLarge, schema)
		require.True(t, named(err), "%v", err)
		require.Less(t, spent, 10_000, schema)
		require.Less(t, bytes, 1<<20, schema)
	}
	_, _, err := compileWithin(`{"type":"integer","allOf":[{"multipleOf":120},{"multipleOf":180},{"multipleOf":240},{"multipleOf":360}]}`, compileWork)
	require.NoError(t, err)
}

// Ensure that remainders which no number within the bounds has take no work.
func TestBoundsLimitRemainders(t *testing.T) {
	for _, bounds := range []string{
		`"minimum":0,"maximum":100`, `"exclusiveMinimum":-100.5,"exclusiveMaximum":100`, `"minimum":-100,"maximum":-1`,
		`"minimum":1,"maximum":100`,
	} {
		for _, steps := range []string{`{"multipleOf":997},{"multipleOf":1009}`, `{"not":{"multipleOf":19997}},{"not":{"multipleOf":19993}}`} {
			schema := `{"type":"integer","allOf":[` + steps + `],` + bounds + `}`
			spent, _, err := compileWithin(schema, compileWork)
			var unsupported *Unsupported
			if err != nil {
				require.ErrorAs(t, err, &unsupported, schema)
				require.Contains(t, unsupported.Reason, "no value", schema)
			}
			require.Less(t, spent, 100_000, schema)
		}
	}
	allows := numbersOf(t, `{"type":"integer","allOf":[{"multipleOf":997},{"not":{"multipleOf":1009}}],"not":{"const":997},"minimum":-997,"maximum":2000}`)
	for text, want := range map[string]bool{"997": false, "-997": true, "1994": true, "0": false, "-1994": false, "2991": false, "19940": false} {
		require.Equal(t, want, allows(text), text)
	}
}

// Ensure that an error for too much work names the innermost keyword whose value is large.
func TestTheErrorOfALimitNamesThePlace(t *testing.T) {
	for schema, want := range map[string]string{
		schemaOf(`{"properties":{"p":{"allOf":[<<{"anyOf":[{"minLength":1},{"minimum":3}]}>>]}}}`, 3000):   "JSON Schema, at /properties/p: allOf: 3000 elements: too much work: more than 10000 units",
		schemaOf(`{"properties":{"p":{"type":"object","dependentRequired":{<<"a%i":["z"]>>}}}}`, 30):       "JSON Schema, at /properties/p: dependentRequired: 30 members: too much work",
		schemaOf(`{"properties":{"p":{"pattern":"^((a%i|))$"}}}`, 2000):                                    "JSON Schema, at /properties/p: pattern: 14002 characters: too much work",
		schemaOf(`{"properties":{"p":{"oneOf":[<<{"pattern":"a%i"}>>]}}}`, 1000):                           "JSON Schema, at /properties/p: oneOf: 1000 elements: too much work",
		schemaOf(`{"properties":{"p":{"anyOf":[{"enum":[<<"a%i">>]}]}}}`, 20000):                           "JSON Schema, at /properties/p/anyOf/0: enum: 20000 elements: too much work",
		schemaOf(`{"$ref":"#/$defs/d00000","$defs":{<<"d%i":{"$ref":"#/$defs/d%k"}>>,"d%m":{}}}`, 1500):    "schemas that are parts of one another or refer to one another: nested too deep: deeper than 1000",
		schemaOf(`{"properties":{"p":{"type":"object","required":[<<"a%i">>]}}}`, 40000):                   "JSON Schema, at /properties/p: required: 40000 names in one place are more than 19998",
		schemaOf(`{"properties":{"p":{"type":"array","prefixItems":[<<{}>>]}}}`, 30000):                    "JSON Schema, at /properties/p: prefixItems: 30000 is above 20000",
		schemaOf(`{"properties":{"p":{"const":[<<1>>]}}}`, 30000):                                          "JSON Schema, at /properties/p: const: 30000 is above 20000",
		`{"type":"array","not":{"maxItems":50000}}`:                                                        "JSON Schema, at /not: maxItems: its negation demands 50001, and 50001 is above 20000",
		`{"type":"array","not":{"minItems":50000}}`:                                                        "JSON Schema, at /not: minItems: its negation demands 49999, and 49999 is above 20000",
		`{"type":"object","not":{"minProperties":50000}}`:                                                  "JSON Schema, at /not: minProperties: its negation demands 49999",
		`{"type":"array","allOf":[<<{"contains":{}}>>]}`:                                                   "JSON Schema, at /allOf/0/contains: contains: 5 schemas",
		`{"allOf":[{"not":{"const":1}},{"not":{"const":2}},{"not":{"enum":[3,4,5,6,7]}}],"type":"number"}`: "JSON Schema, at /allOf/2/not: not: more than 6 bounds",
	} {
		work := 10_000
		if strings.Contains(want, "above") || strings.Contains(want, "more than 19998") || strings.Contains(want, "deeper") {
			work = compileWork
		}
		_, _, err := compileWithin(schemaOf(schema, 5), work)
		require.ErrorContains(t, err, want)
	}
}
