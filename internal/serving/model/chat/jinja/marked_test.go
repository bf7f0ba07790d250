package jinja_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

// looks are templates that look at the texts x and y and make texts of them.
var looks = []string{
	"{{ x }}", "{{ x | trim }}{{ x.strip('<') }}{{ x.lstrip('<a') }}{{ x.rstrip(y) }}",
	"{{ x.split('<a>') }}{{ x.split('<')[0] }}{{ x.rsplit('>', 1) }}{{ x.split('a>', 1)[-1] }}{{ x.split() }}",
	"{% if y %}{{ x.split(y)[-1] }}{{ 'a<b>'.split(y) }}{% endif %}", "{{ x.splitlines() }}",
	"{{ x.replace('<', '«') }}{{ x.replace('a', '<') }}{{ x.replace('<a>', '') }}{{ x | replace(y, 'z') }}{{ 'a<' | replace(y, x) }}",
	"{{ x.replace('<', 'b', 1) }}{{ x | replace('', '-') }}",
	"{{ '<' in x }}{{ x in '<a>b' }}{{ x in ['<', 'a'] }}{{ x is in '<a>' }}{{ y not in x }}",
	"{{ x == '<' }}{{ x != '<a' }}{{ x == y }}{{ x < '<a' }}{{ x >= y }}{{ [x] == ['<'] }}{{ {'k': x} == {'k': '<'} }}",
	"{{ x.startswith('<') }}{{ x.startswith(('a', '<a')) }}{{ x.endswith('>') }}{{ x.startswith(y) }}",
	"{{ x.find('<') }}{{ x.find(y) }}{{ x.removeprefix('<') }}{{ x.removesuffix('a>') }}{{ x.removeprefix(y) }}",
	"{{ x[1:] }}{{ x[:-1] }}{{ x[0] }}{{ x[::-1] }}{{ x | reverse }}{{ x | first }}{{ x | last }}{{ x | list }}{{ x | length }}",
	"{{ x | upper }}{{ x.lower() }}{{ x | capitalize }}{{ x.title() }}{{ x | title }}",
	"{{ x | tojson }}{{ [x, {y: x}] | tojson }}{{ x | tojson(ensure_ascii=true) }}{{ [x] }}{{ {x: y} }}",
	"{{ x ~ '<' ~ y }}{{ x + '<|' + y }}{{ '%s<%s' % (x, y) }}{{ '{}<{}'.format(x, y) }}{{ [x, y] | join('<') }}{{ x.join(['a', '<']) }}",
	"{{ x | e }}{{ x | safe }}{{ ('<' | safe) + x }}", "{{ x | indent }}{{ x * 2 }}{{ x | default('d', true) }}{{ x | string }}",
	"{{ [x, y, '<b'] | sort }}{{ [x, y] | sort(case_sensitive=true) }}", "{{ {'<': 1, 'a': 2}[x] }}{{ x in {'<': 1} }}{{ {'<': 1}.get(x) }}",
	"{% for c in x %}{{ c == '<' }}{{ c }}{% endfor %}", "{% set z %}{{ x }}<{{ y }}{% endset %}{{ z.split('<') }}{{ '<' in z }}{{ z | trim }}",
	"{% macro f(v) %}{{ v }}!{% endmacro %}{{ f(x).split('<')[0] }}{{ f(x).replace('a>', '') }}{{ f(x) == '<!' }}",
	"{{ [x, y] | select('eq', '<') | list }}{{ [{'k': x}] | selectattr('k', 'in', '<a') | list | length }}",
}

func TestMarksDoNotChangeWhatATemplateMakes(t *testing.T) {
	texts := rapid.StringOfN(rapid.RuneFrom([]rune("<<>>ab| \n'\"&｜é")), 0, 6, -1)
	for _, source := range looks {
		template, err := jinja.Parse(source)
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			x, y := texts.Draw(t, "x"), texts.Draw(t, "y")
			chars := []rune("<>|'\"&｜")[:rapid.IntRange(1, 7).Draw(t, "chars")]
			want, err := template.Render(map[string]any{"x": x, "y": y})
			require.NoError(t, err)
			m, err := marks.New(chars, slices.Values([]string{x, y}), "")
			require.NoError(t, err)
			var got strings.Builder
			err = template.RenderMarked(func(piece string) error {
				got.WriteString(piece)
				return nil
			}, map[string]any{"x": m.Mark(x), "y": m.Mark(y)}, m)
			require.NoError(t, err)
			require.Equal(t, want, m.Plain(got.String()), source)
		})
	}
}
