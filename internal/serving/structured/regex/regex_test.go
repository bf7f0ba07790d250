package regex

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

func budget() *meter.Meter {
	return meter.New(context.Background(), meter.Limits{Work: 1_000_000, Bytes: 1 << 30, Depth: 1000})
}

// Ensure that each part of the syntax matches the same texts as in ECMA 262.
func TestEachPartOfTheSyntax(t *testing.T) {
	for _, c := range []struct {
		name, pattern      string
		accepted, rejected string // texts, separated by spaces
	}{
		{"alternatives", `a|bc|`, "a bc", "ab b c"},
		{"star, plus, question mark", `a*b+c?`, "b aab abbc", "a ac bcc"},
		{"counted", `a{2}b{1,}c{0,2}`, "aab aabbbcc", "ab aaab aabccc"},
		{"counted, with other braces", `{a}b{,2}c{x`, "{a}b{,2}c{x", "a"},
		{"lazy", `a*?b+?c??`, "b abc", "a"},
		{"groups", `(a)(?:b)(?<n>c)(?P<m>d)`, "abcd", "abc"},
		{"dot", `.`, "a é \u2027", "ab \u2028"},
		{"classes", `[a-c\d][^a-c\d][-x][x-]`, "ad-x 9z-- az-x", "aa-x d9xx"},
		{"classes with brackets", `[\]\[][[]`, "][ [[", "]]"},
		{"a class as the end of a range", `[\w-.]`, "a - .", "/"},
		{"digits, words, spaces", `\d\D\w\W\s\S`, "1a_-\u00a0x", "11a-\u00a0x 1aa-yx"},
		{"escapes", `\x41\u0042\u{1F600}\cA\.\/\-\_`, "AB\U0001F600\x01./-_", "AB"},
		{"a pair of surrogates", `\uD83D\uDE00`, "\U0001F600", "\uFFFD"},
		{"properties", `\p{Lu}\p{L}\p{Script=Greek}\P{L}`, "Aaα1", "aaα1 AaA1 Aaαα"},
		{"POSIX classes", `[[:alpha:]_][[:^digit:]]`, "a- _x", "1x a1"},
		{"anchors inside", `(^a|b)c$`, "ac bc", "c acb"},
		{"an anchor that cannot hold", `a^b|c`, "c", "ab a^b"},
		{"case", `(?i)aK[x-z](?-i:b)`, "aKXb AkYb a\u212Azb", "AKXB"},
		{"case of a group", `(?i:a)b`, "ab Ab", "aB"},
		{"dot of everything", `(?s).`, "\u2028 a", "ab"},
		{"looking ahead", `(?=a|b)[a-z]{2}`, "aa bz", "cz a"},
		{"looking ahead for nothing", `a(?!bc)[a-z]*`, "a ab abd acb", "abc abcd b"},
		{"looking ahead to the end", `(?!foo$)[a-z]+`, "foobar fo", "foo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Full(c.pattern, budget())
			require.NoError(t, err)
			for text := range strings.SplitSeq(c.accepted, " ") {
				require.NotEqual(t, int32(automaton.None), d.Match(text), text)
			}
			for text := range strings.SplitSeq(c.rejected, " ") {
				require.Equal(t, int32(automaton.None), d.Match(text), text)
			}
		})
	}
}

// Ensure that an expression is refused if it is wrong or no automaton can express it. The error says what is wrong.
func TestRefusedExpressions(t *testing.T) {
	for pattern, problem := range map[string]string{
		`(a)\1`: "a reference to a group is not supported", `\bfoo`: "word boundaries are not supported",
		`(?<=a)b`: "looking behind is not supported", `(?>a)`: "atomic groups are not supported",
		`a++`: "possessive quantifiers are not supported", `(a`: "a ( without its )", `a)`: "a ) without its (",
		`[a`: "a [ without its ]", `[z-a]`: "end is before its begin", `*a`: "without something to repeat",
		`a{3,2}`: "at least 3 and at most 2", `\`: "nothing after the last", `\y`: `the escape \y is not known`,
		`\p{Klingon}`: `\p{Klingon} is not known`, `\u12`: `\u needs 4`, `\uD800\u0041`: "half of a pair",
		`^*`: "matches no character", `(?x)a`: "(?x is not supported", `(a(?=b)c)*`: "inside a repeat",
		strings.Repeat("(", 300): "groups nest deeper", `(a|b)*a(a|b){30}`: "too much work", `a{1000000000}`: "too much work",
	} {
		_, err := Full(pattern, budget())
		require.ErrorContains(t, err, problem, pattern)
	}
}

// Ensure that a search finds the expression anywhere in a text. Anchors restrict the search.
func TestSearch(t *testing.T) {
	for pattern, texts := range map[string][2]string{
		`b`: {"abc b", "ac"}, `^a`: {"a ab", "ba"}, `c$`: {"c abc", "ca"}, `^abc$`: {"abc", "abcd aabc"}, `^a|c$`: {"ab bc", "ba cb"},
		`^(?!io\.)([a-z]+\.)*[a-z]+$`: {"a.b iox.b", "io.b .b"},
	} {
		d, err := Search(pattern, budget())
		require.NoError(t, err)
		for text := range strings.SplitSeq(texts[0], " ") {
			require.NotEqual(t, int32(automaton.None), d.Match(text), "%s %s", pattern, text)
		}
		for text := range strings.SplitSeq(texts[1], " ") {
			require.Equal(t, int32(automaton.None), d.Match(text), "%s %s", pattern, text)
		}
	}
}

// expression draws an expression over a, b and c.
func expression(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{"a", "b", "c", ".", "[ab]", "[^a]", ""}).Draw(t, "atom")
	}
	part := func() string { return expression(t, depth-1) }
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return part() + part()
	case 1:
		return "(?:" + part() + "|" + part() + ")"
	case 2:
		return "(?:" + part() + ")" + rapid.SampledFrom([]string{"*", "+", "?", "{2}", "{1,3}", "{2,}"}).Draw(t, "repeat")
	case 3:
		return "(" + part() + rapid.SampledFrom([]string{"^", "$", ""}).Draw(t, "anchor") + part() + ")"
	}
	return part()
}

// Ensure that random expressions match what Go's regexp matches.
func TestRandomExpressionsMatchAsInGo(t *testing.T) {
	var texts []string
	for length, last := 0, []string{""}; length <= 4; length++ {
		texts = append(texts, last...)
		var next []string
		for _, text := range last {
			for _, r := range "abc" {
				next = append(next, text+string(r))
			}
		}
		last = next
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := expression(t, rapid.IntRange(0, 4).Draw(t, "depth"))
		full, err := Full(pattern, budget())
		require.NoError(t, err)
		search, err := Search(pattern, budget())
		require.NoError(t, err)
		goFull, goSearch := regexp.MustCompile("^(?:"+pattern+")$"), regexp.MustCompile(pattern)
		for _, text := range texts {
			require.Equal(t, goFull.MatchString(text), full.Match(text) != automaton.None, "%s in full: %q", pattern, text)
			require.Equal(t, goSearch.MatchString(text), search.Match(text) != automaton.None, "%s: %q", pattern, text)
		}
	})
}
