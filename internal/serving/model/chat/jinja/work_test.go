package jinja_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

// steps returns the number of steps of a template. Clients' texts are marked as a server marks them.
func steps(t *testing.T, template, text string, value any) int {
	parsed, err := jinja.Parse(template)
	require.NoError(t, err)
	mk, err := marks.New([]rune("<>|"), slices.Values([]string{text, "<"}), template)
	require.NoError(t, err)
	work := jinja.NewMeter(t.Context())
	require.NoError(t, parsed.RenderTo(work, func(string) error { return nil },
		map[string]any{"text": mk.Mark(text), "value": jinja.EachText(value, mk.Mark)}, mk), "%.60s", text)
	return work.Spent()
}

// Ensure that what chat templates do with clients' texts and values takes work in proportion to their size, or to their
// size times its logarithm.
func TestTheWorkForTextsAndValuesIsLinear(t *testing.T) {
	const n = 1 << 10
	for _, template := range []string{"{{ text }}", "{{ text.split('</think>')[-1] }}", "{{ text.rsplit('</think>')[0] }}", "{{ text.split() }}",
		"{{ text.rsplit() }}", "{{ text.split('<', 1)[0] }}", "{{ text | trim }}", "{{ text.strip('<a') }}", "{{ text.lstrip().rstrip() }}",
		"{{ text.replace('</think>', '<') }}", "{{ text | replace('a', 'b') }}", "{{ '</think>' in text }}", "{{ text[1:] }}", "{{ text[::-1] }}",
		"{{ text | tojson }}", "{{ [text] }}", "{{ text.splitlines() | join('x') }}", "{{ text | indent }}", "{{ text | upper | lower }}",
		"{{ text | title }}", "{{ text.title() }}", "{{ text | escape }}", "{{ text.startswith('<') or text.endswith('<') or text.find('|') > 0 }}",
		"{% for c in text %}{{ c }}{% endfor %}", "{{ text.removeprefix('<').removesuffix('>') }}", "{{ text ~ text + text }}"} {
		for _, one := range []string{"a", "</think>", " <", "\n"} {
			text := strings.Repeat(one, n)
			half, whole := steps(t, template, text[:len(text)/2], nil), steps(t, template, text, nil)
			require.LessOrEqual(t, whole, 2*half+100, "%s of %q", template, one)
		}
	}
	for _, template := range []string{"{{ value }}", "{{ value | tojson }}", "{{ value | tojson(indent=4) }}", "{{ value | length }}", "{{ value | list }}",
		"{% for v in value %}{{ v }}{% endfor %}", "{{ value | first }}{{ value | last }}", "{{ value | sort }}", "{{ value | unique | list }}",
		"{{ value | map('upper') | join(',') }}", "{{ value | reverse | list }}", "{{ value | select('string') | list }}", "{{ value == value }}",
		"{{ 'x' in value }}", "{{ (value + value) | length }}", "{{ value[1:] }}", "{{ dict([['x', value]]).items() | list }}"} {
		for _, one := range []string{`"a"`, `"<b>"`, `""`} {
			list := func(n int) any {
				v, err := jinja.FromJSON([]byte("[" + strings.Repeat(one+",", n) + one + "]"))
				require.NoError(t, err)
				return v
			}
			half, whole := steps(t, template, "", list(2*n)), steps(t, template, "", list(4*n))
			require.LessOrEqual(t, whole, 2*half+half/4+100, "%s of %s", template, one)
		}
	}
}

// Ensure that the depth of values is limited where they are read and where they are shown.
func TestDeepValues(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	_, err := jinja.FromJSON(nested(1001))
	require.EqualError(t, err, "a value has lists and objects that are nested more than 1000 deep")
	_, err = jinja.FromJSON([]byte(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)))
	require.ErrorContains(t, err, "more than 1000 deep")
	v, err := jinja.FromJSON(nested(1000))
	require.NoError(t, err)
	for _, template := range []string{"{{ v }}", "{{ v | tojson }}", "{{ v == [v] }}{{ v == v }}"} {
		parsed, err := jinja.Parse(template)
		require.NoError(t, err)
		_, err = parsed.Render(map[string]any{"v": v})
		require.ErrorContains(t, err, "nested too deep: deeper than 200", template)
	}
}

// Ensure that nothing after a value is left unread.
func TestTextAfterAValueIsRefused(t *testing.T) {
	for _, text := range []string{"{} x", "1 2", "[] ]", `"a",`} {
		_, err := jinja.FromJSON([]byte(text))
		require.ErrorContains(t, err, "is not JSON", text)
	}
	v, err := jinja.FromJSON([]byte(" 1 \n"))
	require.NoError(t, err)
	require.Equal(t, int64(1), v)
}

// Ensure that a template stops when its context ends, also if it writes nothing.
func TestATemplateEndsWithItsContext(t *testing.T) {
	parsed, err := jinja.Parse("{% for i in range(9999) %}{% set x = i %}{% endfor %}")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	end()
	work := jinja.NewMeter(ctx)
	err = parsed.RenderTo(work, func(string) error { return nil }, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, work.Spent())
}
