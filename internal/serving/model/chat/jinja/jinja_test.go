package jinja_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

var templates = flag.String("templates", "", "compare with the output of `testdata/make.py FOLDER` in this file")

type rendered struct {
	Variables []map[string]json.RawMessage
	Cases     []struct {
		File, Source, Error string
		Variables           int
		Want                *string
	}
}

// render renders a template with the functions that package chat defines. Its strftime_now returns the same time in
// each call.
func render(t *testing.T, source string, variables map[string]json.RawMessage) (string, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	vars := map[string]any{
		"raise_exception": jinja.Function(func(m []any) (any, error) { return nil, errors.New("refused") }),
		"strftime_now": jinja.Function(func(format []any) (any, error) {
			return strings.NewReplacer("%Y", "2026", "%m", "02", "%d", "03", "%b", "Feb", "%B", "February", "%A", "Tuesday",
				"%H", "04", "%M", "05", "%S", "06").Replace(format[0].(string)), nil
		}),
	}
	for name, text := range variables {
		v, err := jinja.FromJSON(text)
		require.NoError(t, err)
		vars[name] = v
	}
	return parsed.Render(vars)
}

func compare(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var r rendered
	require.NoError(t, json.Unmarshal(text, &r))
	require.NotEmpty(t, r.Cases)
	for _, c := range r.Cases {
		t.Run(c.File, func(t *testing.T) {
			got, err := render(t, c.Source, r.Variables[c.Variables])
			if c.Want == nil {
				require.Error(t, err, "%s\njinja2: %s", c.Source, c.Error)
				return
			}
			require.NoError(t, err, c.Source)
			require.Equal(t, *c.Want, got, c.Source)
		})
	}
}

// testdata/make.py has made what is expected with jinja2.
func TestConstructsRenderAsJinja2RendersThem(t *testing.T) { compare(t, "testdata/constructs.json") }

func TestForeignTemplates(t *testing.T) {
	if *templates == "" {
		t.Skip("-templates names no file")
	}
	compare(t, *templates)
}

func TestWhatIsLeftOutIsRefusedWhenATemplateIsRead(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{"a\n{% include 'x' %}", `line 2: the tag "include" is not supported in a chat template`},
		{"{% import 'x' as y %}", `the tag "import"`},
		{"{% from 'x' import y %}", `the tag "from"`},
		{"{% extends 'x' %}", `the tag "extends"`},
		{"{% block x %}{% endblock %}", `the tag "block"`},
		{"{% with a = 1 %}{% endwith %}", `the tag "with"`},
		{"{% for x in l recursive %}{% endfor %}", "recursive is found where the end of the tag is expected"},
		{"{% if false %}{{ x | wordwrap }}{% endif %}", `the filter "wordwrap" is not supported in a chat template`},
		{"{{ x is sameas y }}", `the test "sameas" is not supported`},
		{"{{ lipsum() }}", `"lipsum" is not supported`},
		{"{% if false %}{{ x.isdigit() }}{% endif %}", `the method "isdigit" is not supported`},
		{"{{ f(**x) }}", "** before an argument is not supported"},
		{`{{ "\N{DASH}" }}`, `the escape \N is not supported`},
		{"{{ 9223372036854775808 }}", "the integer 9223372036854775808 is not supported"},
		{"{{ x | unknown }}", `there is no filter "unknown"`},
	} {
		_, err := jinja.Parse(test.source)
		require.ErrorContains(t, err, test.want, test.source)
	}
}

func TestTheWorkOfATemplateIsBounded(t *testing.T) {
	const work, deep, sources = "too much work", "nested too deep: deeper than 200", "nested more than 200 deep"
	const used = "{% set x = 'x' * (8 * 10**6) %}" // of 1 << 23 steps
	loops := strings.Repeat("{% for x in range(100000) %}", 3) + strings.Repeat("{% endfor %}", 3)
	for _, test := range []struct{ name, source, want string }{
		{"a range", "{% for x in range(10**9) %}{% endfor %}", "a range has more than 100000 elements"},
		{"nested loops", loops, work},
		{"nested loops that print", strings.ReplaceAll(loops, "%}{% endfor", "%}{{ 'abcdefgh' * 99 }}{% endfor"), work},
		{"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", deep},
		{"macros that double", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}", work},
		{"a long text", "{{ ('x' * 10**9) is string }}", work},
		{"a long text by doubling", "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}", work},
		{"a long list", "{{ ([0] * 10**9) is sequence }}", work},
		{"a long list of long lists", "{{ ([[0] * 10**5] * 10**5) | tojson }}", work},
		{"a value that holds itself twice", "{% set n = namespace(l=[0]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}", work},
		{"comparing it", "{% set n = namespace(l=[0]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == [n.l[0] + [], n.l[1] + []] }}", work},
		{"deep values", "{% set n = namespace(l=[0]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l | tojson }}", deep},
		{"an indentation", "{{ [[1]] | tojson(indent=10**9) }}{{ 'a\nb' | indent(10**9) }}", work},
		{"a replacement", "{{ ('x' * 10**6).replace('x', 'y' * 10**6) }}", work},
		{"a join", "{{ ('y' * 10**6).join('x' * 10**6) }}", work},
		{"a format", "{{ ('%s' * 5000) % (('x' * 10**5,) * 5000) }}", work},
		{"JSON with long separators", "{{ ([0] * 10**4) | tojson(separators=('x' * 10**5, ':')) }}", work},
		{"JSON with a long key", used + "{{ ([{'x' * 10**5: 0}] * 10**4) | tojson }}", work},
		{"what is unique of long texts", used + "{{ (['x' * 10**5] * 10**4) | unique }}", work},
		{"a power", "{{ 10 ** 10 ** 10 }}", "is too large"},
		{"many brackets", "{{ " + strings.Repeat("(", 10000) + "1" + strings.Repeat(")", 10000) + " }}", sources},
		{"many ifs", strings.Repeat("{% if 1 %}", 10000) + strings.Repeat("{% endif %}", 10000), sources},
		{"many operators", "{{ 1" + strings.Repeat(" + 1", 10000) + " }}", "more than 500 operators in a row"},
		{"many filters", "{{ 1" + strings.Repeat(" | string", 10000) + " }}", "more than 500 operators in a row"},
		{"many attributes", "{{ x" + strings.Repeat(".x", 10000) + " }}", "more than 500 operators in a row"},
		{"many nots", "{{ " + strings.Repeat("not ", 10000) + " 1 }}", sources},
		{"many signs", "{{ " + strings.Repeat("-", 10000) + " 1 }}", sources},
		{"many targets", "{% for " + strings.Repeat("(", 10000) + "x" + strings.Repeat(")", 10000) + " in y %}{% endfor %}", sources},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := render(t, test.source, nil)
			require.ErrorContains(t, err, test.want)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<30))
		})
	}
}

func TestTestsOfALongTextAreNoWork(t *testing.T) {
	text := strings.Repeat("long ", 1<<20)
	out, err := render(t, "{% for i in range(99) %}{{ [s] | select('string') | list | length if s is defined and s is string }}{% endfor %}",
		map[string]json.RawMessage{"s": []byte(`"` + text + `"`)})
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("1", 99), out)
}

func TestFromJSONRefusesWhatIsNoJSON(t *testing.T) {
	for _, text := range []string{"", "{", "[1", `{"a" 1}`, `{"a"`} {
		_, err := jinja.FromJSON([]byte(text))
		require.ErrorContains(t, err, "a value is not JSON", text)
	}
}

func FuzzTemplates(f *testing.F) {
	text, err := os.ReadFile("testdata/constructs.txt")
	require.NoError(f, err)
	for line := range strings.Lines(string(text)) {
		f.Add(strings.NewReplacer("⏎", "\n", "⇥", "\t").Replace(line))
	}
	variables := map[string]json.RawMessage{
		"s": []byte(`" ab c "`), "l": []byte(`[3, 1, 2]`), "n": []byte(`null`), "d": []byte(`{"b": 1, "a": [true, null, 1.5, "é"]}`),
		"msgs": []byte(`[{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]`),
	}
	f.Fuzz(func(t *testing.T, source string) { _, _ = render(t, source, variables) })
}

func TestTemplatesRenderAtTheSameTime(t *testing.T) {
	var all sync.WaitGroup
	for _, factor := range []string{"2", "3", "5", "7"} {
		all.Go(func() {
			got, err := render(t, "{% for i in range(1, 10001) if ("+factor+" * i) is not divisibleby("+factor+") %}{{ i }} {% endfor %}", nil)
			assert.NoError(t, err)
			assert.Empty(t, got)
		})
	}
	all.Wait()
}

func TestLettersOfALongText(t *testing.T) {
	got, err := render(t, "{% set x = 'ab' * 20000 %}{% for i in range(300) %}{% if x[i] ~ x[-1:] not in 'abb' %}{{ i }}{% endif %}{% endfor %}", nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestOtherNamesOfTestsAndMethods(t *testing.T) {
	for source, want := range map[string]string{
		"{{ 'abcab'.removeprefix('ab') }}{{ 'abcab'.removesuffix('ab') }}{{ 'abc'.removeprefix('c') }}": "cababcabc",
		"{{ '<' | escape }}": "&lt;",
		"{{ 1 is lessthan 2 }}{{ 1 is greaterthan 2 }}{{ [1, 2, 3] | select('<=', 2) | list }}{{ [1, 2, 3] | select('>=', 2) | list }}":          "TrueFalse[1, 2][2, 3]",
		"{% set d = {'clear': 1, 'fromkeys': 1, 'popitem': 1, 'setdefault': 1} %}{{ d.clear }}{{ d.fromkeys }}{{ d.popitem }}{{ d.setdefault }}": "",
	} {
		got, err := render(t, source, nil)
		require.NoError(t, err)
		require.Equal(t, want, got, source)
	}
}

// inspecting lists templates that inspect the texts x and y, and output texts made from them.
var inspecting = []string{
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
	for _, source := range inspecting {
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
			err = template.RenderTo(jinja.NewMeter(context.Background()), func(piece string) error {
				got.WriteString(piece)
				return nil
			}, map[string]any{"x": m.Mark(x), "y": m.Mark(y)}, m)
			require.NoError(t, err)
			require.Equal(t, want, m.Plain(got.String()), source)
		})
	}
}
