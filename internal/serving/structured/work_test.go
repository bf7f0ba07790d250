package structured

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/testkit/level"
)

// repeated returns n texts one after another.
func repeated(n int, text func(i int) string) string {
	var w strings.Builder
	for i := range n {
		w.WriteString(text(i))
	}
	return w.String()
}

func grammarOf(text string) Form { return Form{Grammar: text} }

// A hostile form is one whose work could grow faster than its size n.
type hostileForm struct {
	name  string
	works int  // the size up to which it must work
	steep bool // the work grows faster than the size, until a limit refuses it
	form  func(n int) Form
}

var hostile = []hostileForm{
	{"nullable doubling", 64, true, func(n int) Form {
		return grammarOf("root ::= r0\n" + repeated(n, func(i int) string { return fmt.Sprintf("r%d ::= r%d r%d\n", i, i+1, i+1) }) +
			fmt.Sprintf(`r%d ::= "a"?`, n))
	}},
	{"suffix", 4096, true, func(n int) Form { return grammarOf(`root ::= [ab]* "a"` + strings.Repeat(" [ab]", n)) }},
	{"prefixes", 0, true, func(n int) Form { return grammarOf(`root ::= ` + strings.Repeat(`[ab]* "a" `, n)) }},
	{"optional", 512, true, func(n int) Form { return grammarOf(`root ::= ` + strings.Repeat(`[a-z]? `, n)) }},
	{"optional, long", 0, true, func(n int) Form { return grammarOf(`root ::= ` + strings.Repeat(`"ab"? `, n)) }},
	{"stars of many", 0, true, func(n int) Form {
		return grammarOf(`root ::= ` + repeated(n, func(i int) string { return fmt.Sprintf(`"%c"* `, 'a'+i%26) }))
	}},
	{"counted nests", 1024, false, func(n int) Form {
		return grammarOf(fmt.Sprintf(`root ::= (("a"{1,%d} "b"){1,%d} "c"){1,%d}`, n, n, n))
	}},
	{"one literal", 65536, false, func(n int) Form { return grammarOf(`root ::= "` + strings.Repeat("a", n) + `"`) }},
	{"one literal of many", 16384, false, func(n int) Form {
		return grammarOf(`root ::= "` + repeated(n, func(i int) string { return string(rune(0x4e00 + i%20000)) }) + `"`)
	}},
	{"literals", 4096, false, func(n int) Form { return grammarOf(`root ::= ` + strings.Repeat(`"ab" `, n)) }},
	{"classes", 4096, false, func(n int) Form { return grammarOf(`root ::= ` + strings.Repeat(`[^a] `, n)) }},
	{"different classes", 512, false, func(n int) Form {
		return grammarOf(`root ::= ` + repeated(n, func(i int) string { return fmt.Sprintf(`[\u4e00-\u%04x] `, 0x4e00+i%20000) }))
	}},
	{"a class of many in a grammar", 16384, false, func(n int) Form {
		return grammarOf(`root ::= [` + repeated(n, func(i int) string { return string(rune(0x4e00 + 2*i%16000)) }) + `]+`)
	}},
	{"alternatives", 4096, false, func(n int) Form {
		return grammarOf(`root ::= "x" | ` + repeated(n, func(i int) string { return fmt.Sprintf(`"abc%d" | `, i) }) + `"y"`)
	}},
	{"alternatives of rules", 2048, false, func(n int) Form {
		return grammarOf(`root ::= "x" | ` + repeated(n, func(i int) string { return fmt.Sprintf(`r%d | `, i) }) + `"y"` + "\n" +
			repeated(n, func(i int) string { return fmt.Sprintf("r%d ::= \"abc%d\" root?\n", i, i) }))
	}},
	{"references", 16384, false, func(n int) Form { return grammarOf("root ::= " + strings.Repeat("a ", n) + "\na ::= \"x\"\n") }},
	{"references to a recursive rule", 4096, false, func(n int) Form {
		return grammarOf("root ::= " + strings.Repeat("a ", n) + "\na ::= \"x\" a? | \"\"\n")
	}},
	{"a chain of rules", 2048, false, func(n int) Form {
		return grammarOf("root ::= r0\n" + repeated(n, func(i int) string { return fmt.Sprintf("r%d ::= r%d\n", i, i+1) }) + fmt.Sprintf(`r%d ::= "a"`, n))
	}},
	{"a cycle of rules", 2048, false, func(n int) Form {
		return grammarOf("root ::= r0\n" + repeated(n, func(i int) string { return fmt.Sprintf("r%d ::= r%d \"b\" | \"c\"\n", i, (i+1)%n) }))
	}},
	{"left recursion", 2048, false, func(n int) Form {
		return grammarOf("root ::= " + repeated(n, func(i int) string { return fmt.Sprintf(`root "%c" | `, 'a'+i%26) }) + `"x"`)
	}},
	{"hidden left recursion", 0, true, func(n int) Form {
		return grammarOf("root ::= " + strings.Repeat("e ", n) + "root \"a\" | \"x\"\ne ::= \"\" | \"b\"")
	}},
	{"ambiguous", 0, false, func(n int) Form { return grammarOf("root ::= " + strings.Repeat("root ", n) + `| "a"?`) }},
	{"stars", 65536, false, func(n int) Form { return grammarOf(`root ::= "a"` + strings.Repeat("*", n)) }},
	{"mixed quantifiers", 16384, false, func(n int) Form { return grammarOf(`root ::= "a"` + strings.Repeat("?+*", n)) }},
	{"counts of counts", 0, true, func(n int) Form { return grammarOf(`root ::= "a"` + strings.Repeat("{0,2}", n)) }},
	{"nested plus", 128, false, func(n int) Form {
		return grammarOf(`root ::= ` + strings.Repeat("(", n) + `"a"` + strings.Repeat(` "b"?)+`, n))
	}},
	{"nested groups", 128, false, func(n int) Form {
		return grammarOf(`root ::= ` + strings.Repeat("(", n) + `"a"` + strings.Repeat(`)`, n))
	}},
	{"a large count", 16384, false, func(n int) Form { return grammarOf(fmt.Sprintf(`root ::= ([a-z]+ "," root?){%d}`, n)) }},
	{"comments", 65536, false, func(n int) Form { return grammarOf("root ::= \"a\"\n" + strings.Repeat("#\n", n)) }},
	{"a long name", 65536, false, func(n int) Form {
		return grammarOf("root ::= " + strings.Repeat("a", n) + "\n" + strings.Repeat("a", n) + ` ::= "x"`)
	}},

	{"regex: a class of many", 16384, false, func(n int) Form {
		return Form{Regex: "[" + repeated(n, func(i int) string { return string(rune(0x4e00 + 2*i%16000)) }) + "]+"}
	}},
	{"regex: look-aheads", 4096, false, func(n int) Form { return Form{Regex: strings.Repeat("(?=a)", n) + "a"} }},
	{"regex: look-aheads between", 0, true, func(n int) Form { return Form{Regex: strings.Repeat("(?=a)a", n)} }},
	{"regex: look-aheads that differ", 0, false, func(n int) Form {
		return Form{Regex: repeated(n, func(i int) string { return fmt.Sprintf("(?!a{%d})", i%100+1) }) + "a*"}
	}},
	{"regex: tail", 0, true, func(n int) Form { return Form{Regex: "(a|b)*a" + strings.Repeat("(a|b)", n)} }},
	{"regex: literal", 8192, false, func(n int) Form { return Form{Regex: strings.Repeat("a", n)} }},
	{"regex: letters", 4096, false, func(n int) Form {
		return Form{Regex: repeated(n, func(i int) string { return string(rune('a' + i*7%26)) })}
	}},
	{"regex: folded", 0, false, func(n int) Form { return Form{Regex: "(?i)" + strings.Repeat("a", n)} }},
	{"regex: folded classes", 0, false, func(n int) Form { return Form{Regex: "(?i)" + strings.Repeat(`[\p{L}]`, n)} }},
	{"regex: properties", 4096, false, func(n int) Form { return Form{Regex: strings.Repeat(`\p{L}`, n)} }},
	{"regex: properties in a class", 0, false, func(n int) Form { return Form{Regex: "[" + strings.Repeat(`\P{L}`, n) + "]"} }},
	{"regex: alternatives", 2048, false, func(n int) Form {
		return Form{Regex: "x" + repeated(n, func(i int) string { return fmt.Sprintf("|abc%d", i) })}
	}},
	{"regex: begins", 0, false, func(n int) Form { return Form{Regex: "(" + strings.Repeat("^|", n) + "^)a"} }},
	{"regex: ends", 0, false, func(n int) Form { return Form{Regex: "a" + strings.Repeat("($|b)", n)} }},
	{"regex: nested plus", 64, true, func(n int) Form { return Form{Regex: strings.Repeat("(", n) + "a" + strings.Repeat("b?)+", n)} }},
	{"regex: optional", 256, true, func(n int) Form { return Form{Regex: strings.Repeat("a?", n)} }},
	{"regex: counts", 0, true, func(n int) Form { return Form{Regex: fmt.Sprintf("((a{1,%d}b){1,%d}c){1,%d}", n, n, n)} }},
	{"choices", 4096, false, func(n int) Form {
		f := Form{}
		for i := range n {
			f.Choice = append(f.Choice, fmt.Sprintf("choice %d", i))
		}
		return f
	}},
	{"choices of random characters", 1024, false, func(n int) Form {
		random, f := rand.New(rand.NewPCG(7, 8)), Form{}
		for range n {
			text := ""
			for range 12 {
				text += string(rune(0x400 + random.IntN(0xC000)))
			}
			f.Choice = append(f.Choice, text)
		}
		return f
	}},

	{"tags with a grammar each", 1024, false, func(n int) Form {
		t := &Tags{Triggers: []string{"<"}}
		for i := range n {
			t.Tags = append(t.Tags, Tag{Begin: fmt.Sprintf("<%d>", i), Content: grammarOf(`root ::= [ab]* "a" [ab] [ab] [ab]`), End: []string{"</>"}})
		}
		return Form{Tags: t}
	}},
	{"equal tags", 1024, false, func(n int) Form {
		t := &Tags{Triggers: []string{"<"}}
		for range n {
			t.Tags = append(t.Tags, Tag{Begin: "<", Content: grammarOf(`root ::= [ab]* "a" [ab] [ab] [ab]`), End: []string{"</>"}})
		}
		return Form{Tags: t}
	}},
	{"triggers", 1024, false, func(n int) Form {
		t := &Tags{}
		for i := range n {
			mark := fmt.Sprintf("<%d>", i)
			t.Triggers, t.Tags = append(t.Triggers, mark), append(t.Tags, Tag{Begin: mark, Content: Form{Text: "a"}, End: []string{"</>"}})
		}
		return Form{Tags: t}
	}},
	{"tags with free text", 1024, false, func(n int) Form {
		t := &Tags{Triggers: []string{"<"}}
		for i := range n {
			t.Tags = append(t.Tags, Tag{Begin: fmt.Sprintf("<%d>", i), Content: Form{Free: &Free{}}, End: []string{fmt.Sprintf("</%d>", i)}})
		}
		return Form{Tags: t}
	}},
	{"excludes", 16384, false, func(n int) Form {
		f := &Free{}
		side := int(math.Sqrt(float64(n)))
		for i := range side {
			f.Excluded = append(f.Excluded, strings.Repeat(string(rune('a'+i%26)), side)+fmt.Sprint(i))
		}
		return Form{Free: f}
	}},
	{"ends", 1024, false, func(n int) Form {
		t := &Tag{Begin: "<", Content: Form{Free: &Free{}}}
		for i := range n {
			t.End = append(t.End, fmt.Sprintf("</%d>", i))
		}
		return Form{Tag: t}
	}},
	{"ends of a repeat", 0, false, func(n int) Form {
		t := &Tag{Begin: "<", Content: Form{Repeat: &Repeat{Form: Form{Text: "a"}, Min: n, Max: 2 * n}}}
		for i := range n {
			t.End = append(t.End, fmt.Sprintf("</%d>", i))
		}
		return Form{Tag: t}
	}},
	{"a sequence", 4096, false, func(n int) Form {
		f := Form{}
		for i := range n {
			f.Sequence = append(f.Sequence, Form{Text: fmt.Sprintf("%d,", i)})
		}
		return f
	}},
	{"any of", 4096, false, func(n int) Form {
		f := Form{}
		for i := range n {
			f.AnyOf = append(f.AnyOf, Form{Text: fmt.Sprintf("%d,", i)})
		}
		return f
	}},
	{"a text", 65536, false, func(n int) Form { return Form{Text: strings.Repeat("<", n)} }},
	{"nested repeats", 0, false, func(n int) Form {
		f := Form{Text: "a"}
		for range n {
			f = Form{Repeat: &Repeat{Form: f, Min: 1, Max: 2}}
		}
		return f
	}},
	{"a large repeat", 16384, false, func(n int) Form { return Form{Repeat: &Repeat{Form: Form{Regex: "[a-z]+,"}, Min: n, Max: n}} }},
	{"separated", 1024, false, func(n int) Form {
		s := &Separated{Separator: ","}
		for i := range n {
			s.Tags = append(s.Tags, Tag{Begin: fmt.Sprint(i), Content: Form{Text: "a"}})
		}
		return Form{Separated: s}
	}},
}

// cost is what a form costs.
type cost struct {
	bytes     int // of the form; for an answer, its tokens
	units     int // counted
	allocated int // bytes
	err       error
}

// allocatedBy returns the bytes that a function allocates.
func allocatedBy(do func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// costOf compiles a form, and then plays the beginning of an answer.
func costOf(t *testing.T, v *Vocabulary, f Form) (compiling, answering cost) {
	compiling.bytes = len(must(f))
	var c *Constraint
	m := meter.New(context.Background(), meter.Limits{Work: CompileWork, Bytes: compileBytes, Depth: compileDepth})
	compiling.allocated = allocatedBy(func() { c, compiling.err = compile(m, v, f) })
	compiling.units = m.Spent()
	if compiling.err != nil {
		return compiling, answering
	}
	matcher := c.NewMatcher()
	mask := make([]uint64, v.Words())
	answering.allocated = allocatedBy(func() {
		for i := 0; i < 12 && !matcher.Done() && answering.err == nil; i++ {
			if answering.err = matcher.Mask(mask); answering.err == nil {
				answering.err = matcher.Accept(nth(mask, 7*i))
			}
			answering.bytes++
		}
	})
	answering.units = int(matcher.account.spent.Load())
	return compiling, answering
}

// nth returns an allowed token, the one with index n if there are so many.
func nth(mask []uint64, n int) int {
	var tokens []int
	for i, word := range mask {
		for ; word != 0; word &= word - 1 {
			tokens = append(tokens, 64*i+bits.TrailingZeros64(word))
		}
	}
	return tokens[n%len(tokens)]
}

// Ensure that the work and the memory for a form grow linearly with its size, until a limit refuses it, and that a limit
// ends what is too much work while the answer is made. The size is doubled until then, or until the size that must work
// and a largest size, which depends on the level of the run, are reached.
func TestTheWorkForAFormIsLinearOrRefused(t *testing.T) {
	tokens := []string{"ab", "aaa", "aaaaaaaa", "</", ",\"", "a b", "bb"}
	for b := range 256 {
		tokens = append(tokens, string([]byte{byte(b)}))
	}
	v := vocabularyOf(t, tokens...)
	largest := 256
	if level.Long() {
		largest = level.Pick(1024, 1<<20)
	}
	for _, kind := range hostile {
		t.Run(kind.name, func(t *testing.T) {
			last := 0
			for n := 4; ; n *= 2 {
				c, a := costOf(t, v, kind.form(n))
				about := fmt.Sprintf("n %d, %d bytes: %d units, %d allocated, %.200v; %d tokens: %d units, %d allocated, %v",
					n, c.bytes, c.units, c.allocated, c.err, a.bytes, a.units, a.allocated, a.err)
				t.Log(about)
				require.LessOrEqual(t, c.allocated, 200_000+200*c.units+150*c.bytes, about)
				require.LessOrEqual(t, a.allocated, 100_000+a.bytes*3*tokenBytes, about)
				for _, err := range []error{c.err, a.err} {
					if limit := (*meter.LimitError)(nil); err != nil && !errors.As(err, &limit) {
						require.Regexp(t, "more than|deeper than|is not supported", err.Error(), about)
					}
				}
				if c.err != nil {
					require.Greater(t, n, kind.works, about)
					return
				}
				if !kind.steep && last > 0 {
					require.LessOrEqual(t, c.units, last*27/10+20_000, about)
				}
				if last = c.units; c.bytes > 1<<20 || n >= max(kind.works, largest) {
					return
				}
			}
		})
	}
}
