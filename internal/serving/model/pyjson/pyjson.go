// Package pyjson reads JSON as Python's json module writes it: with the numbers Infinity, -Infinity and NaN, which JSON
// does not have. Folders of models have files with them, such as config.json with "time_step_limit": [0.0, Infinity].
package pyjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Unmarshal reads numbers that are not finite as these, which are beyond float64, so that encoding/json refuses them
// where it would have to store them.
const infinity, nan = "1e999", "1e9999"

// words are Python's numbers that are not finite, by what Unmarshal reads instead of them.
var words = map[string]string{infinity: "Infinity", "-" + infinity: "-Infinity", nan: "NaN"}

// Unmarshal is json.Unmarshal for a text that Python has written. A number that is not finite can only be stored in a
// json.RawMessage, whose number Float returns. Stored elsewhere, it is an error that names the field.
func Unmarshal(data []byte, v any) error {
	err := json.Unmarshal(finite(data), v)
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		if word, ok := words[strings.TrimPrefix(typeErr.Value, "number ")]; ok {
			if typeErr.Field == "" {
				return fmt.Errorf("a value is %s; a finite value is needed", word)
			}
			return fmt.Errorf("%s is %s; a finite value is needed", typeErr.Field, word)
		}
	}
	return err
}

// Float returns the number of a message that Unmarshal has stored, which may be an infinity or NaN. Newer versions of
// transformers write these as {"__float__": "Infinity"}.
func Float(raw json.RawMessage) (float64, error) {
	word, known := words[string(raw)]
	if !known {
		var object struct {
			Float string `json:"__float__"`
		}
		if json.Unmarshal(raw, &object) == nil {
			word = object.Float
		}
	}
	switch word {
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	case "NaN":
		return math.NaN(), nil
	}
	var v *float64
	if err := json.Unmarshal(raw, &v); err != nil || v == nil {
		return 0, fmt.Errorf("%s is not a number", raw)
	}
	return *v, nil
}

// Text returns the text of a message that Unmarshal has stored. A number is as in the file.
func Text(raw json.RawMessage) string {
	if word, ok := words[string(raw)]; ok {
		return word
	}
	return string(raw)
}

// finite returns data with numbers of JSON instead of Python's.
func finite(data []byte) []byte {
	if !bytes.Contains(data, []byte("Infinity")) && !bytes.Contains(data, []byte("NaN")) {
		return data
	}
	out := make([]byte, 0, len(data)+len(data)/2)
	quoted := false
	for i := 0; i < len(data); i++ {
		switch {
		case quoted && data[i] == '\\' && i+1 < len(data):
			out = append(out, data[i])
			i++
		case data[i] == '"':
			quoted = !quoted
		case quoted:
		case isWord(data, i, "Infinity"):
			out = append(out, infinity...)
			i += len("Infinity") - 1
			continue
		case isWord(data, i, "NaN"):
			out = append(out, nan...)
			i += len("NaN") - 1
			continue
		}
		out = append(out, data[i])
	}
	return out
}

// isWord reports whether data has the word at i, as a whole value. A minus may be before Infinity.
func isWord(data []byte, i int, word string) bool {
	after, ok := bytes.CutPrefix(data[i:], []byte(word))
	if !ok {
		return false
	}
	before := data[:i]
	if word == "Infinity" {
		before = bytes.TrimSuffix(before, []byte("-"))
	}
	const space = " \t\r\n"
	return (len(before) == 0 || bytes.IndexByte([]byte(space+",:["), before[len(before)-1]) >= 0) &&
		(len(after) == 0 || bytes.IndexByte([]byte(space+",]}"), after[0]) >= 0)
}
