package structured

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Ensure that grammars in the forms of llama.cpp's and vLLM's manuals accept and refuse the right
// answers.
func TestGrammars(t *testing.T) {
	for _, c := range []struct {
		name, grammar      string
		accepted, rejected []string // rejected: texts that begin no answer, or that are not complete
	}{
		{"arithmetic, left recursive", `
			root ::= sum # an expression
			sum ::= sum [-+] product | product
			product ::= product ("*" | "/") atom | atom
			atom ::= [0-9]+ | "(" sum ")"`,
			[]string{"1", "1+2*3", "(1-2)/(3)", "((7))"}, []string{"", "1+", "(1", "1)", "a"}},
		{"a list", `root ::= ("- " item)+
			item ::= [^\n]+ "\n"`, []string{"- a\n", "- a\n- é b\n"}, []string{"a", "- a", "-a\n", "- \n"}},
		{"JSON", `
			root   ::= object
			value  ::= object | array | string | number | ("true" | "false" | "null") ws
			object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
			array  ::= "[" ws ( value ("," ws value)* )? "]" ws
			string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
			number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
			ws ::= | " " | "\n" [ \t]{0,20}`,
			[]string{`{}`, `{"a": [1, -2.5e+3, {"b":null}], "\u00e9\n":"x"}`, "{\n\t}"}, []string{`[]`, `{"a"}`, `{"a":01}`, `{"a":1,}`, `{"a":"` + "\n\"}"}},
		{"counted", `root ::= "a"{2} "b"{1,} "c"{,2} "d"{1,2} 'e'`, []string{"aabde", "aabbccdde"}, []string{"abde", "aade", "aabcccde", "aabddde"}},
		{"escapes", `root ::= "\x41\u00e9\U0001F600\t" [\]\-\\a-c] .`, []string{"Aé\U0001F600\t]x", "Aé\U0001F600\t-\n", "Aé\U0001F600\t\\é"}, []string{"Aé\U0001F600\td"}},
		{"right recursive, over several lines", "root ::= item\n  (\",\" root)?\nitem ::=\n  \"x\" |\n  \"y\"", []string{"x", "x,y,x"}, []string{"", "x,", "xy"}},
		{"balanced and empty", `root ::= "(" root ")" root |`, []string{"", "()", "(())()"}, []string{"(", "())", ")"}},
		{"hidden left recursion", `root ::= empty root "a" | "b"
			empty ::= "" | "c"`, []string{"b", "baa", "cba", "ccbaa"}, []string{"a", "cb", "ba c"}},
		{"SQL", `root ::= select_statement
			select_statement ::= "SELECT " column " from " table " where " condition
			column ::= "col_1 " | "col_2 "
			table ::= "table_1 " | "table_2 "
			condition ::= column "= " number
			number ::= "1 " | "2 "`, []string{"SELECT col_1  from table_2  where col_2 = 1 "}, []string{"SELECT col_3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var texts [][]byte
			for _, text := range c.accepted {
				texts = append(texts, []byte(text+" "))
			}
			v := smallVocabulary(t, texts...)
			constraint := compiled(t, v, Form{Grammar: c.grammar})
			for _, text := range c.accepted {
				m := constraint.NewMatcher()
				for _, token := range v.tokenize([]byte(text)) {
					requireMaskIsAccepted(t, m, text)
					require.NoError(t, m.Accept(token), text)
				}
				require.True(t, m.CanStop(), text)
				requireMaskIsAccepted(t, m, text)
			}
			for _, text := range c.rejected {
				require.False(t, accepts(constraint, text), text)
			}
		})
	}
}

// accepts reports whether a text is an answer.
func accepts(c *Constraint, text string) bool {
	m := c.NewMatcher()
	for _, token := range c.vocabulary.tokenize([]byte(text)) {
		if m.Accept(token) != nil {
			return false
		}
	}
	return m.CanStop()
}

// Ensure that the error for a wrong grammar names the line and the mistake.
func TestRefusedGrammars(t *testing.T) {
	v := vocabularyOf(t, "a")
	for grammar, problem := range map[string]string{
		`start ::= "a"`: "no rule root", "root ::= \"a\"\n  other": "line 2: there is no rule other", `root ::= "a`: "without its closing quote",
		`root ::= [a`: "a [ without its ]", `root ::= ("a"`: "a ( without its )", `root ::= "a")`: `')' is not expected`, `root = "a"`: "name and ::=",
		`root ::= "\q"`: `the escape \q is not known`, `root ::= "\u12"`: `\u needs 4`, `root ::= [z-a]`: "end is before its begin", `root ::= "a"{x}`: "a repeat is",
		`root ::= "a"{3,2}`: "at least 3 and at most 2", "root ::= \"a\"\nroot ::= \"b\"": "defined twice", `root ::= "a" root`: "no answer", `root ::= *`: `'*' is not expected`,
		`root ::= x{100000000}` + "\nx ::= \"a\" x | \"b\"": "more than", "root ::= " + strings.Repeat("(", 300): "nest deeper",
	} {
		_, err := Compile(v, Form{Grammar: grammar})
		require.ErrorContains(t, err, problem, grammar)
	}
}

// rules is a random grammar over the characters a and b: the alternatives of each rule, and the symbols of
// each alternative. The letter A + i is the symbol of rule i.
type rules [][][]string

func (r rules) String() string {
	var out strings.Builder
	name := func(i int) string {
		if i == 0 {
			return "root"
		}
		return string(rune('A' + i))
	}
	for i, alternatives := range r {
		fmt.Fprintf(&out, "%s ::=", name(i))
		for j, symbols := range alternatives {
			if j > 0 {
				out.WriteString(" |")
			}
			for _, s := range symbols {
				if s >= "A" && s <= "Z" {
					s = name(int(s[0] - 'A'))
				} else {
					s = `"` + s + `"`
				}
				out.WriteString(" " + s)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// recognise is a simple Earley recogniser. It reports whether the text is the beginning of a text that
// the first rule derives, and whether the rule derives the text itself.
func (r rules) recognise(text string) (begins, derives bool) {
	type item struct{ rule, alternative, dot, origin int }
	ends := r.ends()
	sets := make([]map[item]bool, len(text)+1)
	for i := range sets {
		sets[i] = map[item]bool{}
	}
	enter := func(set map[item]bool, rule, origin int) {
		for a, symbols := range r[rule] {
			if !slices.ContainsFunc(symbols, func(s string) bool { return s >= "A" && s <= "Z" && !ends[s[0]-'A'] }) {
				set[item{rule, a, 0, origin}] = true
			}
		}
	}
	enter(sets[0], 0, 0)
	for pos, set := range sets {
		for size := -1; size != len(set); {
			size = len(set)
			for i := range maps.Clone(set) {
				symbols := r[i.rule][i.alternative]
				switch {
				case i.dot == len(symbols):
					for caller := range maps.Clone(sets[i.origin]) {
						next := r[caller.rule][caller.alternative]
						if caller.dot < len(next) && next[caller.dot] == string(rune('A'+i.rule)) {
							set[item{caller.rule, caller.alternative, caller.dot + 1, caller.origin}] = true
						}
					}
				case symbols[i.dot] >= "A" && symbols[i.dot] <= "Z":
					enter(set, int(symbols[i.dot][0]-'A'), pos)
				case pos < len(text) && symbols[i.dot] == text[pos:pos+1]:
					sets[pos+1][item{i.rule, i.alternative, i.dot + 1, i.origin}] = true
				}
			}
		}
	}
	last := sets[len(text)]
	for i := range last {
		derives = derives || i.rule == 0 && i.origin == 0 && i.dot == len(r[0][i.alternative])
	}
	return len(last) > 0, derives
}

// ends returns which rules derive any text.
func (r rules) ends() []bool {
	ends := make([]bool, len(r))
	for range r {
		for i, alternatives := range r {
			for _, symbols := range alternatives {
				if !slices.ContainsFunc(symbols, func(s string) bool { return s >= "A" && s <= "Z" && !ends[s[0]-'A'] }) {
					ends[i] = true
				}
			}
		}
	}
	return ends
}

// Ensure that random grammars allow exactly the beginnings of their texts. The grammars can be ambiguous. A rule can
// call itself or other rules at its beginning, in its middle and at its end.
func TestRandomGrammarsAllowWhatTheyDerive(t *testing.T) {
	const length = 5
	v := vocabularyOf(t, "a", "b", "ab", "ba", "aab")
	rapid.Check(t, func(t *rapid.T) {
		symbol := rapid.SampledFrom([]string{"a", "b", "A", "B", "C"})
		r := rules(rapid.SliceOfN(rapid.SliceOfN(rapid.SliceOfN(symbol, 0, 3), 1, 3), 3, 3).Draw(t, "rules"))
		r[0] = append(r[0], []string{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "text")})
		c := compiled(t, v, Form{Grammar: r.String()})
		var walk func(m *Matcher, text string)
		walk = func(m *Matcher, text string) {
			_, derives := r.recognise(text)
			require.Equal(t, derives, m.CanStop(), "%q of %s", text, r)
			if len(text) >= length {
				return
			}
			mask := make([]uint64, v.Words())
			m.Mask(mask)
			for id, token := range v.tokens[:5] {
				begins, _ := r.recognise(text + string(token))
				require.Equal(t, begins, mask[0]>>id&1 == 1, "%q after %q of %s", token, text, r)
				if next := m.Clone(); len(token) == 1 && begins {
					require.NoError(t, next.Accept(id))
					walk(next, text+string(token))
				}
			}
		}
		walk(c.NewMatcher(), "")
	})
}
