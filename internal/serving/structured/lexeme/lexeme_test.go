package lexeme

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

// match returns the tag of a text, or None.
func match(l *Lexeme, text string) int32 {
	state := int32(0)
	for i := range len(text) {
		if state = l.Next(state, text[i]); state == None {
			return None
		}
	}
	return l.Tag(state)
}

// Ensure which spellings of JSON strings the two forms have.
func TestSpellingsOfStrings(t *testing.T) {
	quotedAny := Text("", automaton.All(), Quoted, true)
	freeAny := Length(0, -1, 16)
	for text, forms := range map[string]string{
		`"a"`: "both", ` "a"`: "both", "\n\t\"\"": "both", `"é€😀"`: "both", `"\"\\\b\f\n\r\t"`: "both", `"\u0001"`: "both", "\"\x7f\"": "both",
		`"\/"`: "free", `"\u00e9"`: "free", `"\uD83D\uDE00"`: "free", `"\u000a"`: "free", `"\u001F"`: "free", `"\u0041"`: "free",
		`"\ud83d"`: "none", `"\ud83dx"`: "none", `"\ud83d\u0041"`: "none", `"\ude00"`: "none", `"\x"`: "none", `"\u12g4"`: "none",
		"\"\n\"": "none", `"a" `: "none", `a`: "none", "\"\xff\"": "none", "\"\xed\xa0\x80\"": "none", "\"\xc0\x80\"": "none", "\"\xe0\x80\x80\"": "none",
		"\"\xf4\x90\x80\x80\"": "none", "\"\xf0\x80\x80\x80\"": "none",
	} {
		require.Equal(t, forms == "both", match(quotedAny, text) != None, text)
		require.Equal(t, forms != "none", match(freeAny, text) != None, text)
	}
}

// Ensure that the white space before a lexeme is a space, or a limited number of line breaks and a limited indentation.
func TestWhiteSpaceIsLimited(t *testing.T) {
	name := Names([]string{"a"}, []int32{0})
	raw, err := automaton.Texts([]string{`"a"`}, meter.New(t.Context(), meter.Limits{Work: 1000, Bytes: 1000}))
	require.NoError(t, err)
	for space, want := range map[string]bool{
		"": true, " ": true, "\n": true, "\r\n": true, "\n\n": true, "\r\n\n": true, "\r\n\r\n": true, "\n  ": true, "\n\t \t": true,
		"\n" + strings.Repeat(" ", maxIndent): true, "\r\n" + strings.Repeat("\t", maxIndent): true,
		"\t": false, "\r": false, "\r\r": false, "\n\r": false, "\r ": false, "\n\r ": false, "\r\n\r\n\r": false, " \r\n": false,
		"  ": false, " \n": false, "\t ": false, "\n \n": false, "\n\n\n": false, "\n" + strings.Repeat(" ", maxIndent+1): false, "\v": false, "\u00a0": false,
	} {
		for _, l := range []*Lexeme{Length(0, -1, 16), Strings([]string{"a"}), name, Text("", automaton.All(), Quoted, true), Text("", raw, Raw, true)} {
			text := space + `"a"`
			if l == name {
				text += space + ":"
				require.Equal(t, want, match(l, `"a"`+space+":") != None, "%q before the colon", space)
			}
			require.Equal(t, want, match(l, text) != None, "%q", text)
		}
	}
}

// Ensure that a lexeme keeps a limited number of rows, and finds the same states after it has removed some.
func TestKeptRowsHaveALimit(t *testing.T) {
	const longest = 7 * maxRows / 4
	l := Length(longest, longest, 16)
	kept := func() (n int) {
		for _, r := range l.rows {
			if r != nil {
				n++
			}
		}
		return n
	}
	for range 2 {
		state := l.Next(0, '"')
		for range longest {
			require.Equal(t, int32(None), l.Next(state, '"'))
			state = l.Next(state, 'a')
		}
		require.LessOrEqual(t, kept(), maxRows)
		require.Greater(t, kept(), maxRows/4)
		require.Equal(t, int32(None), l.Next(state, 'a'))
		require.Equal(t, int32(0), l.Tag(l.Next(state, '"')))
		require.Len(t, l.states, longest+3)
	}
}

// Ensure that encoding/json reads the output of Encode for each character. A lexeme counts each spelling of a
// character as one character.
func TestEachCharacterIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.Rune().Draw(t, "rune"))
		if !slices.Contains([]string{string('\uFFFD')}, text) {
			var read string
			encoded := fmt.Sprintf(`"%s"`, Encode(nil, text))
			require.NoError(t, json.Unmarshal([]byte(encoded), &read))
			require.Equal(t, text, read)
		}
		one := Length(1, 1, 16)
		require.Equal(t, int32(0), match(one, fmt.Sprintf(`"%s"`, Encode(nil, text))))
		require.Equal(t, int32(None), match(one, fmt.Sprintf(`"%s%s"`, Encode(nil, text), Encode(nil, text))))
		escaped := ""
		for _, unit := range utf16Of(text) {
			escaped += fmt.Sprintf(`\u%04x`, unit)
		}
		require.Equal(t, int32(0), match(one, `"`+escaped+`"`))
	})
}

func utf16Of(text string) []uint16 {
	var out []uint16
	for _, r := range text {
		if r > 0xFFFF {
			r -= 0x10000
			out = append(out, uint16(0xD800+r>>10), uint16(0xDC00+r&0x3FF))
			continue
		}
		out = append(out, uint16(r))
	}
	return out
}

// Ensure that the end of a lexeme can be reached from each of its states.
func TestEachStateCanEnd(t *testing.T) {
	for name, l := range map[string]*Lexeme{
		"one letter": Text("", dfa(t, automaton.Set{{Lo: 'x', Hi: 'x'}}), Quoted, true), "one emoji": Text("", dfa(t, automaton.Set{{Lo: 0x1F600, Hi: 0x1F600}}), Free, true),
		"a control": Text("", dfa(t, automaton.Set{{Lo: 1, Hi: 1}, {Lo: '\n', Hi: '\n'}}), Quoted, true), "before the surrogates": Text("", dfa(t, automaton.Set{{Lo: 0xD7FF, Hi: 0xE000}}), Free, true),
		"any": Length(0, 1, 16), "raw": Text("", dfa(t, automaton.Set{{Lo: 0x7FF, Hi: 0x801}, {Lo: 0xFFFF, Hi: 0x10001}}), Raw, false),
		"names": Names([]string{"a", "é\n", "ab"}, []int32{0, 1, 2}), "others": Others([]string{"", "a", "é\n", "ab"}), "strings": Strings([]string{"", "a"}),
	} {
		t.Run(name, func(t *testing.T) {
			for state := 0; state < len(l.states); state++ {
				for b := range 256 {
					l.Next(int32(state), byte(b))
				}
			}
			ends := make([]bool, len(l.states))
			for changed := true; changed; {
				changed = false
				for state := len(l.states) - 1; state >= 0; state-- {
					if ends[state] {
						continue
					}
					ends[state] = l.Tag(int32(state)) != None
					for b := range 256 {
						next := l.Next(int32(state), byte(b))
						ends[state] = ends[state] || next != None && ends[next]
					}
					changed = changed || ends[state]
				}
			}
			require.NotContains(t, ends, false)
		})
	}
}

// dfa returns the automaton of one character of a set.
func dfa(t *testing.T, set automaton.Set) *automaton.DFA {
	b := automaton.NewBuilder(meter.New(context.Background(), meter.Limits{Work: 1000, Bytes: 1 << 20}))
	source, target := b.State(), b.State()
	b.Edge(source, set, target)
	b.Accept(target, 0)
	d, err := b.Build()
	require.NoError(t, err)
	return d
}

// Ensure that the lexeme that Others returns accepts all names except the excluded ones. It must reject an excluded
// name also if the name's characters are written with escapes.
func TestOtherNames(t *testing.T) {
	l := Others([]string{"a", "é", "\x1f", "a\"b"})
	for _, text := range []string{`"a":`, `"é":`, `"\u001f":`, `"\u001F":`, `"\u0061":`, `"a\"b":`, `"a\u0022b":`, `"b"`, `"b" , :`} {
		require.Equal(t, int32(None), match(l, text), text)
	}
	for _, text := range []string{`"":`, `"ab" :`, "\n\"è\"\n:", `"\u001e":`, `"a\"":`, `"a\"bc":`} {
		require.Equal(t, int32(0), match(l, text), text)
	}
	names := Names([]string{"a", "ab", ""}, []int32{3, 5, 7})
	require.Equal(t, int32(3), match(names, `"a":`))
	require.Equal(t, int32(5), match(names, `"ab" :`))
	require.Equal(t, int32(7), match(names, `"":`))
	require.Equal(t, int32(None), match(names, `"b":`))
}
