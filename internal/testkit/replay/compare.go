package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Difference is the first field whose value in the replay differs from the recording.
type Difference struct {
	Trace     string
	Line      int
	Op        string // the operation as JSON, shortened
	Field     string
	Want, Got string // as JSON; "(absent)" if the field is missing
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%s, line %d: %s\n  field     %s\n  recorded  %s\n  played    %s",
		d.Trace, d.Line, d.Op, d.Field, d.Want, d.Got)
}

type result map[string]any

const absent = "(absent)"

// differs returns the first field whose values in want and got differ. It compares the fields in the order of rank,
// and those of the same rank by name.
func differs(want map[string]json.RawMessage, got result) (field, wantText, gotText string, found bool) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(want)), maps.Keys(got))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for _, name := range slices.Compact(names) {
		wantText, gotText = absent, absent
		if raw, ok := want[name]; ok {
			wantText = string(raw)
		}
		if value, ok := got[name]; ok {
			gotText = text(value)
		}
		if wantText != gotText && !sameValue(wantText, gotText) {
			return name, wantText, gotText, true
		}
	}
	return "", "", "", false
}

// rank returns the position of a field in the order of comparison. The results of the operation come first, then the
// state after it. The hashes of the whole state come last.
func rank(name string) int {
	return strings.Index(" free hm ev dump fqh st ", " "+name+" ")
}

func text(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // results hold nothing that cannot be encoded
	}
	return string(b)
}

// sameValue reports whether two JSON texts have the same value, as 0 and 0.0 have.
func sameValue(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false // absent is no JSON
	}
	return text(x) == text(y)
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + fmt.Sprintf("… (%d bytes)", len(s))
}
