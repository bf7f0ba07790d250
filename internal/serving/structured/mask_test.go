package structured

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// vocabularyOf returns a vocabulary of the tokens. The last token ends an answer.
func vocabularyOf(t require.TestingT, tokens ...string) *Vocabulary {
	all := make([][]byte, 0, len(tokens)+1)
	for _, token := range tokens {
		all = append(all, []byte(token))
	}
	v, err := NewVocabulary(append(all, nil), nil, []int{len(tokens)})
	require.NoError(t, err)
	return v
}

// allowed returns the tokens of a mask.
func allowed(m *Matcher) []string {
	v := m.constraint.vocabulary
	mask := make([]uint64, v.Words())
	m.Mask(mask)
	var out []string
	for id, token := range v.tokens {
		if mask[id/64]>>(id%64)&1 == 1 {
			if len(token) == 0 {
				token = []byte("END")
			}
			out = append(out, string(token))
		}
	}
	return out
}

func compiled(t require.TestingT, v *Vocabulary, form Form) *Constraint {
	c, err := Compile(v, form)
	require.NoError(t, err)
	return c
}

// Ensure that the mask is correct at each step of a short answer.
func TestMasksOfAShortAnswer(t *testing.T) {
	v := vocabularyOf(t, "a", "b", "ab", "abc", "c", "ca", "", "d")
	m := compiled(t, v, Form{Regex: "(ab)+c?"}).NewMatcher()
	require.Equal(t, []string{"a", "ab", "abc"}, allowed(m))
	require.NoError(t, m.Accept(0))
	require.Equal(t, []string{"b"}, allowed(m))
	require.ErrorContains(t, m.Accept(0), `token 0 ("a") is not allowed here`)
	require.NoError(t, m.Accept(1))
	require.Equal(t, []string{"a", "ab", "abc", "c", "END"}, allowed(m))
	require.True(t, m.CanStop())
	require.False(t, m.Done())
	require.NoError(t, m.Accept(3))
	require.Equal(t, []string{"END"}, allowed(m))
	require.True(t, m.Done())
	require.NoError(t, m.Accept(8))
	require.Empty(t, allowed(m))
	require.ErrorContains(t, m.Accept(0), "after the end")
	require.NoError(t, m.Rollback(2))
	require.Equal(t, []string{"a", "ab", "abc", "c", "END"}, allowed(m))
	require.ErrorContains(t, m.Rollback(9), "cannot take back 9 of 2 tokens")
	require.ErrorContains(t, m.Accept(6), "has no bytes")
	require.ErrorContains(t, m.Accept(9), "not in the vocabulary")
}

// Ensure that a token may end inside a character.
func TestATokenMayEndInsideACharacter(t *testing.T) {
	v := vocabularyOf(t, "\xc3", "\xa9", "\xaa", "é", "\xe2\x82", "\xac")
	m := compiled(t, v, Form{Choice: []string{"é", "€"}}).NewMatcher()
	require.Equal(t, []string{"\xc3", "é", "\xe2\x82"}, allowed(m))
	require.NoError(t, m.Accept(0))
	require.Equal(t, []string{"\xa9"}, allowed(m))
}

// Ensure that a form that no answer has is refused.
func TestFormsWithoutAnswersAreRefused(t *testing.T) {
	v := vocabularyOf(t, "a")
	for _, form := range []Form{{}, {Regex: "a^b"}} {
		_, err := Compile(v, form)
		require.Error(t, err)
	}
}

// slowMask returns the tokens that may follow a text. A token may follow if the text with the token is the beginning of
// an answer. "END" may follow if the text is an answer.
func slowMask(v *Vocabulary, answers []string, text string) []string {
	var out []string
	for _, token := range v.tokens {
		switch {
		case len(token) == 0 && slices.Contains(answers, text):
			out = append(out, "END")
		case len(token) > 0 && slices.ContainsFunc(answers, func(a string) bool { return strings.HasPrefix(a, text+string(token)) }):
			out = append(out, string(token))
		}
	}
	return out
}

// checkMasks draws a random answer of a form token by token, and compares each mask with slowMask.
func checkMasks(t *rapid.T, form Form, answers []string) {
	alphabet := map[byte]bool{}
	for _, a := range answers {
		for i := range len(a) {
			alphabet[a[i]] = true
		}
	}
	tokens := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		a := rapid.SampledFrom(answers).Draw(t, "answer")
		start := rapid.IntRange(0, len(a)).Draw(t, "from")
		return a[start:rapid.IntRange(start, min(len(a), start+4)).Draw(t, "to")]
	}), 1, 20).Draw(t, "tokens")
	for b := range alphabet {
		tokens = append(tokens, string([]byte{b}))
	}
	slices.Sort(tokens)
	tokens = slices.DeleteFunc(slices.Compact(tokens), func(s string) bool { return s == "" })
	v := vocabularyOf(t, tokens...)
	m := compiled(t, v, form).NewMatcher()
	text := ""
	for range 30 {
		want := slowMask(v, answers, text)
		require.Equal(t, want, allowed(m), "after %q of %v", text, form)
		next := rapid.SampledFrom(want).Draw(t, "next")
		if next == "END" {
			break
		}
		require.NoError(t, m.Accept(slices.IndexFunc(v.tokens, func(b []byte) bool { return string(b) == next })))
		text += next
	}
}

// Ensure that a mask has exactly the tokens that slowMask returns. slowMask compares each token with all answers. The
// answers are random. Their form is a list of choices in one check, and a regular expression with these choices as
// alternatives in the other.
func TestMasksEqualTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		answers := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,6}|a{0,3}éb?`), 1, 8).Draw(t, "answers")
		checkMasks(t, Form{Choice: answers}, answers)
		checkMasks(t, Form{Regex: strings.Join(answers, "|")}, answers)
	})
}

// Ensure that a matcher works correctly after a rollback or as a clone. It behaves like a new matcher that accepted
// only the remaining tokens.
func TestRollbackAndCloneEqualAFreshMatcher(t *testing.T) {
	v := vocabularyOf(t, "a", "b", "c", "ab", "bc", "abc", "cab")
	c := compiled(t, v, Form{Regex: "(a|bc?|cab){1,40}"})
	rapid.Check(t, func(t *rapid.T) {
		m := c.NewMatcher()
		var tokens []int
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				n := rapid.IntRange(0, len(tokens)).Draw(t, "n")
				clone := m.Clone()
				require.NoError(t, m.Rollback(n))
				require.Equal(t, len(tokens), clone.Len())
				tokens = tokens[:len(tokens)-n]
			} else {
				token := rapid.IntRange(0, len(v.tokens)-1).Draw(t, "token")
				if m.Accept(token) == nil {
					tokens = append(tokens, token)
				}
			}
			fresh := c.NewMatcher()
			for _, token := range tokens {
				require.NoError(t, fresh.Accept(token))
			}
			require.Equal(t, allowed(fresh), allowed(m), fmt.Sprint(tokens))
			require.Equal(t, allowed(fresh), allowed(m.Clone()))
			require.Equal(t, fresh.Done(), m.Done())
		}
	})
}

// Ensure that the masks of a long text with a pattern and limits of its length take little work, and that such patterns
// do not add to the work of a schema.
func TestALongTextWithAPattern(t *testing.T) {
	v := largeVocabulary()
	var properties []string
	for i := range 20 {
		properties = append(properties, fmt.Sprintf(`"p%d": {"type": "string", "pattern": "^data:image/(jpg|png|svg\\+xml);base%d,[0-9a-zA-Z+/=]*$", "maxLength": 32767}`, i, i))
	}
	schema := `{"type": "object", "properties": {` + strings.Join(properties, ",") + `}}`
	c, err := CompileWithin(context.Background(), v, Form{JSONSchema: []byte(schema)}, 100_000)
	require.NoError(t, err)
	m := c.NewMatcher()
	mask := make([]uint64, v.Words())
	tokens := v.tokenize([]byte(`{"p7": "data:image/png;base7,` + strings.Repeat("iVBORw0KGgoAAAANSU", 300) + `"}`))
	for _, token := range tokens {
		require.NoError(t, m.Mask(mask))
		require.NotZero(t, mask[token/64]>>(token%64)&1)
		require.NoError(t, m.Accept(token))
	}
	require.True(t, m.CanStop())
	require.Less(t, int(m.account.spent.Load()), 2_000*len(tokens))
}

// Ensure that masks of a long text between tags need little work, whether a text or a special token ends it.
func TestALongTextBetweenTags(t *testing.T) {
	const special = 20000
	v, err := NewVocabulary(largeVocabulary().tokens[:special+2], map[int]string{special: "</arg_value>", special + 1: "<end>"}, []int{special + 1})
	require.NoError(t, err)
	for _, end := range []string{"</parameter>", "</arg_value>"} {
		c := compiled(t, v, Form{Parameters: &Parameters{[]byte(`{"properties": {"p": {"type": "string", "maxLength": 5000}}, "required": ["p"]}`),
			ParameterTags{Begin: "<", Between: ">\n", NameEnd: ">", End: end, Strings: map[string]bool{"p": false}}}})
		m := c.NewMatcher()
		mask := make([]uint64, v.Words())
		tokens := v.tokenize([]byte("<p>\n" + strings.Repeat("The name of a city, and others\n", 100)))
		for _, token := range tokens {
			require.NoError(t, m.Mask(mask))
			require.NotZero(t, mask[token/64]>>(token%64)&1)
			require.NoError(t, m.Accept(token))
		}
		require.Less(t, int(m.account.spent.Load()), 1_000*len(tokens), end)
	}
}
