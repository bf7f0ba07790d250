package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// A Difference is the first field in which a replay differs from the recording.
type Difference struct {
	Trace     string
	Line      int
	Op        string // the operation as JSON, shortened
	Field     string
	Want, Got string // as JSON; "(absent)" if the field is missing
	Around    string // lines about the pool and the blocks that may be concerned
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%s, line %d: %s\n  field     %s\n  recorded  %s\n  played    %s\n%s",
		d.Trace, d.Line, d.Op, d.Field, d.Want, d.Got, d.Around)
}

// A result has the fields of an operation's result in the replay.
type result map[string]any

const absent = "(absent)"

// differs compares got with the recorded fields and returns the first difference, in
// the order of rank and name.
func differs(want map[string]json.RawMessage, got result) (field, wantText, gotText string, found bool) {
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			names = append(names, name)
		}
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := rank(names[i]), rank(names[j])
		if a != b {
			return a < b
		}
		return names[i] < names[j]
	})
	for _, name := range names {
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

// rank orders fields: results of the operation first, then the state after it, and digests last.
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

// sameValue reports whether two JSON texts have the same value, for example 0 and 0.0.
func sameValue(a, b string) bool {
	if a == absent || b == absent {
		return false
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return bytes.Equal([]byte(text(x)), []byte(text(y)))
}

// shorten keeps the beginning of a long text.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + fmt.Sprintf("… (%d bytes)", len(s))
}
