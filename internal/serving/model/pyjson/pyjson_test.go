package pyjson_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/pyjson"
)

type fields struct {
	Number  float64           `json:"number"`
	Integer int               `json:"integer"`
	Name    string            `json:"name"`
	Inner   *fields           `json:"inner"`
	List    []float64         `json:"list"`
	Raw     json.RawMessage   `json:"raw"`
	Raws    []json.RawMessage `json:"raws"`
}

// Ensure that a field that is not read may have any number of Python, and that one that is read is refused by its name.
func TestNumbersThatAreNotFinite(t *testing.T) {
	for text, want := range map[string]string{
		`{"other": [0.0, Infinity, -Infinity,NaN], "number": 1}`: "",
		`{"other":NaN}`:                     "",
		`{"number": Infinity}`:              "number is Infinity; a finite value is needed",
		`{"number": -Infinity}`:             "number is -Infinity; a finite value is needed",
		`{"number":NaN}`:                    "number is NaN; a finite value is needed",
		`{"integer": Infinity}`:             "integer is Infinity; a finite value is needed",
		`{"name": NaN}`:                     "json: cannot unmarshal number into Go struct field fields.name of type string",
		`{"inner": Infinity}`:               "json: cannot unmarshal number into Go struct field fields.inner of type pyjson_test.fields",
		`{"inner": {"number": -Infinity }}`: "inner.number is -Infinity; a finite value is needed",
		`{"list": [1, NaN]}`:                "list is NaN; a finite value is needed",
		`Infinity`:                          "json: cannot unmarshal number into Go value of type pyjson_test.fields",
		`{"number": -NaN}`:                  "invalid character 'N' in numeric literal",
		`{"number": 1Infinity}`:             "invalid character 'I' after object key:value pair",
		`{"number": Infinity5}`:             "invalid character 'I' looking for beginning of value",
		`{"number": --Infinity}`:            "invalid character '-' in numeric literal",
		`{"number": 1-Infinity}`:            "invalid character '-' after object key:value pair",
		`{"number": Infinit}`:               "invalid character 'I' looking for beginning of value",
		`{Infinity: 1}`:                     "invalid character 'I' looking for beginning of object key string",
		`{"number": "Infinity"}`:            "json: cannot unmarshal string into Go struct field fields.number of type float64",
	} {
		var got fields
		err := pyjson.Unmarshal([]byte(text), &got)
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, want, text)
		}
	}
}

// Ensure that texts stay as they are, also with quotes and the words of the numbers.
func TestTextsAreNotChanged(t *testing.T) {
	for _, name := range []string{`Infinity`, ` NaN `, `a \" [Infinity, NaN] \\`, `[NaN]\\\"`, `NaN`} {
		var got, want fields
		text := `{"raw": NaN, "name": "` + name + `", "raws": [1]}`
		require.NoError(t, pyjson.Unmarshal([]byte(text), &got))
		require.NoError(t, json.Unmarshal([]byte(`"`+name+`"`), &want.Name))
		require.Equal(t, want.Name, got.Name)
		require.Equal(t, "NaN", pyjson.Text(got.Raw))
		require.Equal(t, "1", pyjson.Text(got.Raws[0]))
	}
}

func TestAValueWithoutAField(t *testing.T) {
	var n int
	require.EqualError(t, pyjson.Unmarshal([]byte(`-Infinity`), &n), "a value is -Infinity; a finite value is needed")
}

func TestFloat(t *testing.T) {
	var got fields
	require.NoError(t, pyjson.Unmarshal([]byte(`{"raws": [1.5, Infinity, -Infinity, NaN, {"__float__": "Infinity"},
		{"__float__": "-Infinity"}, {"__float__": "NaN"}]}`), &got))
	for i, want := range []float64{1.5, math.Inf(1), math.Inf(-1), math.NaN(), math.Inf(1), math.Inf(-1), math.NaN()} {
		v, err := pyjson.Float(got.Raws[i])
		require.NoError(t, err)
		require.Equal(t, math.Float64bits(want), math.Float64bits(v), "%d", i)
	}
	for _, text := range []string{`"1"`, `null`, `{}`, `{"__float__": "x"}`, `[1]`, `1e400`} {
		_, err := pyjson.Float(json.RawMessage(text))
		require.EqualError(t, err, text+" is not a number")
	}
}
