package structured

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/testkit/level"
)

// nestedTag returns the format of tags around a content.
func nestedTag(depth int, content string) string {
	return strings.Repeat(`{"type": "tag", "begin": "<a>", "end": "</a>", "content": `, depth) + content + strings.Repeat("}", depth)
}

// Ensure that the work and the memory for reading a structural tag grow linearly with its size, or that it is refused.
func TestTheWorkOfReadingATagIsLinearOrRefused(t *testing.T) {
	for name, format := range map[string]func(n int) string{
		"a text deep inside": func(n int) string {
			return nestedTag(90, fmt.Sprintf(`{"type": "const_string", "value": %q}`, strings.Repeat("x", n)))
		},
		"a schema deep inside": func(n int) string {
			return nestedTag(90, `{"type": "json_schema", "json_schema": [`+strings.Repeat("1,", n)+"1]}")
		},
		"deep tags": func(n int) string { return nestedTag(n, `{"type": "any_text"}`) },
		"a sequence": func(n int) string {
			return `{"type": "sequence", "elements": [` + strings.Repeat(`{"type": "any_text"},`, n) + `{"type": "any_text"}]}`
		},
		"tags": func(n int) string {
			return `{"type": "triggered_tags", "triggers": ["<"], "tags": [` + strings.Repeat(nestedTag(1, `{"type": "any_text"}`)+",", n) +
				nestedTag(1, `{"type": "any_text"}`) + "]}"
		},
		"lists in lists": func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) },
		"lists in lists, refused": func(n int) string {
			return `{"type": "or", "elements": ` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
		},
		"many fields": func(n int) string {
			return "{" + repeated(n, func(i int) string { return fmt.Sprintf(`"f%d": null, `, i) }) + `"type": "any_text"}`
		},
		"excludes": func(n int) string { return `{"type": "any_text", "excludes": ["x"` + strings.Repeat(`,"x"`, n) + "]}" },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 64; n <= level.Pick(1<<14, 1<<20); n *= 4 {
				data := []byte(`{"type": "structural_tag", "format": ` + format(n) + "}")
				m := meter.New(context.Background(), meter.Limits{Work: tagWork, Bytes: tagBytes})
				var err error
				allocated := allocatedBy(func() { _, err = structuralTag(data, m) })
				about := fmt.Sprintf("n %d, %d bytes: %d units, %d allocated, %.100v", n, len(data), m.Spent(), allocated, err)
				t.Log(about)
				require.LessOrEqual(t, m.Spent(), 3*len(data), about)
				require.LessOrEqual(t, allocated, 500_000+100*len(data), about)
				if limit := (*meter.LimitError)(nil); err != nil && !errors.As(err, &limit) {
					require.Regexp(t, "deeper than|not a JSON object|not an object|not supported", err.Error(), about)
				}
			}
		})
	}
}
