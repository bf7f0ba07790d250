package structured

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/structured/lexeme"
)

// formOf draws a form.
func formOf(t *rapid.T, depth int) Form {
	words := []string{"a", "b", "<", "ab", "<a", "a<", "<<", "S", "aS", "Sb"}
	marks := []string{"a", "b", "<", "ab", "<a", "a<", "<<", "aa", "S"}
	word, mark := rapid.SampledFrom(words), rapid.SampledFrom(marks)
	plain := rapid.SampledFrom(marks[:8])
	optional := func(label string) []string { return rapid.SliceOfN(plain, 0, 1).Draw(t, label) }
	kinds := []string{"text", "choice", "free"}
	if depth > 0 {
		kinds = []string{"free", "sequence", "any", "tag", "tag", "tags", "tags", "tags", "separated", "repeat", "repeat"}
	}
	tag := func(begin string) Tag {
		return Tag{begin, formOf(t, depth-1), rapid.SampledFrom([][]string{nil, {"a"}, {"<a"}, {"<", "b"}, {"aa"}, {"S"}}).Draw(t, "end")}
	}
	flag := func(label string) bool { return rapid.Bool().Draw(t, label) }
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "text":
		return Form{Text: word.Draw(t, "text")}
	case "choice":
		return Form{Choice: []string{"a", plain.Draw(t, "choice")}}
	case "free":
		return Form{Free: &Free{optional("without")}}
	case "sequence":
		return Form{Sequence: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Form { return formOf(t, depth-1) }), 0, 3).Draw(t, "parts")}
	case "any":
		return Form{AnyOf: []Form{formOf(t, depth-1), formOf(t, depth-1)}}
	case "repeat":
		r := &Repeat{formOf(t, depth-1), rapid.IntRange(0, 2).Draw(t, "min"), 0}
		r.Max = rapid.SampledFrom([]int{-1, r.Min, r.Min + 1, r.Min + 2}).Draw(t, "max")
		return Form{Repeat: r}
	case "tag":
		one := tag(word.Draw(t, "begin"))
		return Form{Tag: &one}
	case "separated":
		return Form{Separated: &Separated{[]Tag{tag(word.Draw(t, "begin")), tag(word.Draw(t, "begin"))}, word.Draw(t, "separator"), flag("one"), flag("stop")}}
	}
	triggers := rapid.SliceOfNDistinct(mark, 1, 2, rapid.ID).Draw(t, "triggers")
	var tags []Tag
	for _, trigger := range triggers {
		tags = append(tags, tag(trigger+rapid.SampledFrom([]string{"", "a", "<", "S"}).Draw(t, "rest")))
	}
	return Form{Tags: &Tags{triggers, tags, optional("without"), flag("one"), flag("stop")}}
}

// Ensure that random forms with parts allow a token exactly if the text with this token is still the beginning of an
// answer. The expected result is from naiveReader, which tries all divisions of the text.
func TestRandomFormsAllowWhatTheyDescribe(t *testing.T) {
	const length = 5
	tokens := []string{"a", "b", "<", "ab", "<a", "aa<", "<<b", "S"}
	all := make([][]byte, len(tokens)+1)
	for id, token := range tokens[:7] {
		all[id] = []byte(token)
	}
	v, err := NewVocabulary(all, map[int]string{7: "S"}, []int{8})
	require.NoError(t, err)
	compiledForms := 0
	rapid.Check(t, func(t *rapid.T) {
		form := formOf(t, rapid.IntRange(1, 2).Draw(t, "depth"))
		v.cache, v.maxMerged = map[lexeme.Identity]*stateTokens{}, rapid.SampledFrom([]int{0, 1000}).Draw(t, "merged")
		c, err := Compile(v, form)
		if err != nil { // a tag with two triggers
			require.ErrorContains(t, err, "begins with")
			t.Skip()
		}
		compiledForms++
		shown := must(form)
		var walk func(m *Matcher, text string)
		walk = func(m *Matcher, text string) {
			_, answer := readAll(&form, text)
			require.Equal(t, answer, m.CanStop(), "%q of %s", text, shown)
			if len(text) >= length {
				return
			}
			mask := make([]uint64, v.Words())
			m.Mask(mask)
			for id, token := range tokens {
				begins, _ := readAll(&form, text+token)
				require.Equal(t, begins, mask[0]>>id&1 == 1, "%q after %q of %s", token, text, shown)
				if next := m.Clone(); len(token) == 1 && begins {
					require.NoError(t, next.Accept(id))
					walk(next, text+token)
				}
			}
		}
		walk(c.NewMatcher(), "")
	})
	require.Positive(t, compiledForms)
}

func must(form Form) []byte {
	text, err := json.Marshal(form)
	if err != nil {
		panic(err)
	}
	return text
}

// tagged returns a function that reports whether a text is a complete answer of the form. Each ASCII character is a
// token, and S is a special token.
func tagged(t *testing.T, form Form) func(text string) bool {
	all := make([][]byte, 129)
	for b := range 128 {
		if b != 'S' {
			all[b] = []byte{byte(b)}
		}
	}
	v, err := NewVocabulary(all, map[int]string{'S': "<|special|>"}, []int{128})
	require.NoError(t, err)
	c := compiled(t, v, form)
	return func(text string) bool {
		m := c.NewMatcher()
		for i := range len(text) {
			if m.Accept(int(text[i])) != nil {
				return false
			}
		}
		return m.CanStop()
	}
}

// Ensure that structural tags as in the manuals of xgrammar and vLLM accept the right answers. S is a special token.
func TestStructuralTags(t *testing.T) {
	const weather = `{"begin": "<function=weather>", "content": {"type": "json_schema", "json_schema": {"type": "object",
		"properties": {"city": {"enum": ["Rome"]}}, "required": ["city"], "additionalProperties": false}}, "end": "</function>"}`
	const time = `{"type": "tag", "begin": "<function=time>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": ["</function>", "."]}`
	for _, test := range []struct {
		name, tag          string
		accepted, rejected []string
	}{
		{"the older form", `{"type": "structural_tag", "triggers": ["<f="], "structures": [{"begin": "<f=a>", "schema": {"type": "integer"},
			"end": "</f>"}, {"begin": "<f=b>", "schema": "{\"type\": \"boolean\"}", "end": "</f>"}]}`,
			[]string{"", "text < f=", "<f=a>1</f>", "so <f=b>true</f> and <<f=a>-2</f>!", "<f"},
			[]string{"<f=", "<f=a>", "<f=a>true</f>", "x <f=c>", "S"}},
		{"triggered tags", `{"format": {"type": "triggered_tags", "triggers": ["<function="], "tags": [` + weather + "," + time + `],
			"excludes": ["ERROR"], "at_least_one": false}}`,
			[]string{"It is <function=time>12. late", `<function=weather>{"city":"Rome"}</function><function=time>1</function>`, "ERR"},
			[]string{"<function=", "no ERROR", `<function=weather>{"city":"Bonn"}</function>`}},
		{"at least one", `{"format": {"type": "triggered_tags", "triggers": ["<function="], "tags": [` + time + `], "at_least_one": true}}`,
			[]string{"<function=time>1.", "<function=time>1. and <function=time>2."}, []string{"", "a <function=time>1."}},
		{"exactly one", `{"format": {"type": "triggered_tags", "triggers": ["<function="], "tags": [` + time + `], "at_least_one": true,
			"stop_after_first": true}}`, []string{"<function=time>1."}, []string{"", "<function=time>1. ", "<function=time>1.<function=time>1."}},
		{"reasoning, then a schema", `{"format": {"type": "sequence", "elements": [{"type": "tag", "begin": "<think>", "content":
			{"type": "any_text"}, "end": "</think>"}, {"type": "json_schema", "json_schema": {"type": "array"}}]}}`,
			[]string{"<think></think>[]", "<think>a </thin </think>\n[1]"}, []string{"[]", "<think>a</think>b</think>[]", "<think></think>"}},
		{"an excluded end", `{"format": {"type": "tag", "begin": "", "content": {"type": "any_text", "excludes": ["</"], "max_tokens": null},
			"end": "</t>"}}`, []string{"</t>", "a<</t>"}, []string{"</</t>", "a"}},
		{"a special token", `{"format": {"type": "sequence", "elements": [{"type": "tag", "begin": {"type": "token", "token": "<|special|>"},
			"content": {"type": "any_text"}, "end": "a<|special|>"}, {"type": "or", "elements": [{"type": "const_string", "value": ""},
			{"type": "grammar", "grammar": "root ::= \"x\" root | \"y\""}]}]}}`,
			[]string{"SaS", "Sb aSxxy"}, []string{"S", "Sb", "SbS", "<|special|>aS", "Sa<|special|>"}},
		{"repeats", `{"format": {"type": "sequence", "elements": [{"type": "optional", "content": {"type": "const_string", "value": "o"}},
			{"type": "plus", "content": {"type": "regex", "pattern": "[pq]"}}, {"type": "star", "content": {"type": "const_string", "value": "s"}},
			{"type": "repeat", "min": 1, "max": 2, "content": {"type": "json_schema", "json_schema": {"const": 1}}},
			{"type": "repeat", "min": 2, "max": -1, "content": {"type": "const_string", "value": "r"}}]}}`,
			[]string{"op1rr", "pqs1rrr", "qssss 1 1rrrr"}, []string{"oop1rr", "o1rr", "prr", "p111rr", "p1r"}},
		{"tokens", `{"format": {"type": "sequence", "elements": [{"type": "token", "token": "<|special|>"}, {"type": "tag", "begin": "a",
			"content": {"type": "any_tokens", "exclude_tokens": ["<|special|>", "xy"]}, "end": {"type": "token", "token": "<|special|>"}}]}}`,
			[]string{"SaS", "Sabx yS"}, []string{"aS", "SaSS", "SaxyS"}},
		{"tags that tokens trigger", `{"format": {"type": "token_triggered_tags", "trigger_tokens": ["<|special|>"], "tags": [{"type": "tag",
			"begin": {"type": "token", "token": "<|special|>"}, "content": {"type": "regex", "pattern": "[0-9]"}, "end": "."}]}}`,
			[]string{"", "so S1. or S2.", "S3."}, []string{"S", "Sa.", "S1"}},
		{"dispatch", `{"format": {"type": "dispatch", "rules": [["<a>", {"type": "const_string", "value": "1"}], ["<b>", {"type": "star",
			"content": {"type": "const_string", "value": "2"}}]], "excludes": ["end"]}}`,
			[]string{"", "so <a>1 and <b>222.", "<b><a>1", "<a"}, []string{"<a>", "<a>2", "the end", "x <a>1 end"}},
		{"dispatch once", `{"format": {"type": "token_dispatch", "loop": false, "rules": [["<|special|>", {"type": "const_string", "value": "1"}]]}}`,
			[]string{"", "so S1"}, []string{"S", "S1 ", "S1S1"}},
		{"separated", `{"format": {"type": "tags_with_separator", "separator": ", ", "tags": [` + time + `]}}`,
			[]string{"", "<function=time>1.", "<function=time>1., <function=time>2."}, []string{",", "<function=time>1.,"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			form, err := StructuralTag([]byte(test.tag))
			require.NoError(t, err)
			accepts := tagged(t, form)
			for _, text := range test.accepted {
				require.True(t, accepts(text), text)
			}
			for _, text := range test.rejected {
				require.False(t, accepts(text), text)
			}
		})
	}
}

// Ensure that if a structural tag cannot be obeyed, the error names the place and the mistake.
func TestRefusedStructuralTags(t *testing.T) {
	v := vocabularyOf(t, "a")
	deep := strings.Repeat(`{"type": "sequence", "elements": [`, 200) + `{"type": "any_text"}` + strings.Repeat("]}", 200)
	for tag, problem := range map[string]string{
		`[]`: "not a JSON object", `{}`: "neither format nor structures", `{"format": {}}`: "format: it is not an object with a type",
		`{"format": {"type": "exclude_token"}}`: `format: the type "exclude_token" is not supported`, `{"format": {"type": "dispatch"}}`: "there are none",
		`{"format": {"type": "any_tokens", "max_tokens": 3}}`:                                                  `format: the field "max_tokens" is not supported`,
		`{"format": {"type": "any_tokens", "exclude_tokens": [3]}}`:                                            "format: the token 3 has no name, and numbers of tokens are not supported",
		`{"format": {"type": "token", "token": 42}}`:                                                           "format: the token 42 has no name",
		`{"format": {"type": "token"}}`:                                                                        "format: the token has no name",
		`{"format": {"type": "token_triggered_tags", "trigger_tokens": [7]}}`:                                  "format: the token 7 has no name",
		`{"format": {"type": "token_dispatch", "rules": [[5, {"type": "any_text"}]]}}`:                         "format.rules[0]: it does not begin with a text",
		`{"format": {"type": "dispatch", "rules": [["a", {"type": "or"}]]}}`:                                   "format.rules[0][1]: it has no elements",
		`{"format": {"type": "star", "content": {"type": "x"}}}`:                                               `format.content: the type "x" is not supported`,
		`{"format": {"type": "plus", "max": 2, "content": {"type": "any_text"}}}`:                              "format: only repeat has min and max",
		`{"format": {"type": "repeat", "min": 2, "content": {"type": "any_text"}}}`:                            "format: min or max is missing",
		`{"format": {"type": "repeat", "min": 3, "max": 2, "content": {"type": "any_text"}}}`:                  "format: min is 3 and max is 2",
		`{"format": {"type": "repeat", "min": 0, "max": 1000000, "content": {"type": "token", "token": "a"}}}`: "more than 400000 nodes and edges",
		`{"format": {"type": "or", "elements": []}}`:                                                           "format: it has no elements",
		`{"format": {"type": "any_text", "max_tokens": 3}}`:                                                    `format: the field "max_tokens" is not supported`,
		`{"format": {"type": "sequence", "elements": [{"type": "regex", "pattern": 1}]}}`:                      "format.elements[0]: cannot unmarshal number",
		`{"format": {"type": "tag", "begin": 3}}`:                                                              "format.begin: it is neither a text nor a token with a name",
		`{"format": {"type": "tag", "begin": "", "end": ""}}`:                                                  "format.content: it is not an object with a type",
		`{"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}`:                          `the style "qwen_xml" is not supported`,
		`{"format": {"type": "json_schema", "json_schema": {}, "any_order": true}}`:                            "any_order is not supported",
		`{"format": {"type": "json_schema", "json_schema": {"uniqueItems": true}}}`:                            "uniqueItems",
		`{"format": {"type": "triggered_tags", "triggers": ["a"], "tags": []}}`:                                "tags: there are none",
		`{"triggers": ["a", "b"], "structures": [{"begin": "a", "end": ""}]}`:                                  `no tag begins with the trigger "b"`,
		`{"triggers": ["a", "ab"], "structures": [{"begin": "abc", "end": ""}]}`:                               `begins with two triggers, "a" and "ab"`,
		`{"triggers": ["a", ""], "structures": [{"begin": "abc", "end": ""}]}`:                                 "a trigger is empty",
		`{"triggers": [], "structures": [{"begin": "abc", "end": ""}]}`:                                        "begins with none of the triggers",
		`{"triggers": ["a"], "structures": [{"begin": "a", "end": "", "schema": "{"}]}`:                        "structures[0]: the schema is not JSON",
		`{"format": ` + deep + `}`:                                                                             "nest deeper than 100",
		`{"format": {"type": "tag", "begin": "", "content": {"type": "regex"}, "end": ""}}`:                    "without content",
	} {
		form, err := StructuralTag([]byte(tag))
		if err == nil {
			_, err = Compile(v, form)
		}
		require.ErrorContains(t, err, problem, tag)
	}
	v, err := NewVocabulary([][]byte{[]byte("a"), nil}, map[int]string{1: "<|end|>"}, []int{1})
	require.NoError(t, err)
	_, err = Compile(v, Form{Tag: &Tag{Begin: "a", Content: Form{Free: &Free{}}, End: []string{"<|end|>"}}})
	require.ErrorContains(t, err, "<|end|>, which is the end of an answer")
}

// Ensure that the tokens of free text include no spanning tokens if no text can follow the free text. A mask then needs
// no work for tokens that have bytes after the end of the free text.
func TestFreeTextAtTheEndHasNoSpanningTokens(t *testing.T) {
	all := [][]byte{[]byte("a"), []byte("b"), []byte("abab"), nil, nil}
	v, err := NewVocabulary(all, map[int]string{3: "<|call|>"}, []int{4})
	require.NoError(t, err)
	tags := []Tag{{Begin: "<|call|>", Content: Form{Text: "a"}, End: []string{"b"}}}
	for _, test := range []struct {
		form     Form
		spanning bool
	}{
		{Form{Free: &Free{}}, false}, {Form{Tags: &Tags{Triggers: []string{"<|call|>"}, Tags: tags}}, false},
		{Form{Sequence: []Form{{Free: &Free{}}, {Text: "b"}}}, true},
	} {
		c := compiled(t, v, test.form)
		spanning := false
		for _, item := range c.runner.Start().Items {
			_, tokens, err := c.itemTokens(item)
			require.NoError(t, err)
			spanning = spanning || len(tokens.spanning) > 0
		}
		require.Equal(t, test.spanning, spanning, "%s", must(test.form))
	}
}

// Ensure that free text at the end of a list of tags, and of a tag without an end, stops at the end of the tag around it,
// as free text at the end of a sequence does.
func TestFreeTextStopsAtTheEndOfTheTagAround(t *testing.T) {
	v := vocabularyOf(t, "<", "/", "t", ">", "a", "x", " ", "y", ",")
	free := Form{Free: &Free{}}
	open := []Tag{{Begin: "a", Content: free}}
	for name, content := range map[string]Form{
		"a sequence": {Sequence: []Form{{Text: "a"}, free}},
		"a list":     {Separated: &Separated{Tags: open, Separator: ",", AtLeastOne: true}},
		"one tag":    {Separated: &Separated{Tags: open, AtLeastOne: true, StopAfterFirst: true}},
		"triggered":  {Tags: &Tags{Tags: open, Triggers: []string{"a"}, AtLeastOne: true, StopAfterFirst: true}},
	} {
		c := compiled(t, v, Form{Tag: &Tag{Begin: "<t>", Content: content, End: []string{"</t>"}}})
		require.True(t, accepts(c, "<t>a x</t>"), name)
		require.False(t, accepts(c, "<t>a x</t> y</t>"), name)
	}
}

// Ensure that forms which would need too much work are refused.
func TestFormsThatAreTooLargeAreRefused(t *testing.T) {
	v := smallVocabulary(t, []byte("<tag>"))
	many := &Tags{}
	for i := range 2000 {
		mark := fmt.Sprintf("<%d>", i)
		many.Triggers, many.Tags = append(many.Triggers, mark), append(many.Tags, Tag{Begin: mark, Content: Form{Free: &Free{}}})
	}
	large := &Separated{}
	for i := range 20 {
		schema := fmt.Appendf(nil, `{"items": {"maxItems": 9000}, "maxItems": %d}`, 9000+i)
		large.Tags = append(large.Tags, Tag{Begin: "<", Content: Form{JSONSchema: schema}})
	}
	nested := Form{Text: "a"}
	for range 200 {
		nested = Form{AnyOf: []Form{nested}}
	}
	for problem, form := range map[string]Form{
		"nodes and edges": {Separated: large}, "nest deeper": nested,
		"too much work: more than": {Text: strings.Repeat("<", 3_000_000)},
	} {
		_, err := Compile(v, form)
		require.ErrorContains(t, err, problem)
	}
	_, err := Compile(v, Form{Tags: many})
	require.NoError(t, err)
}

// Ensure that Compacted reaches all parts of a form and does not change the form itself.
func TestCompactedFormsAreCompactInAllParts(t *testing.T) {
	v := vocabularyOf(t, "[", "]", ",", " ", "1", "<", ">", "2", "\n")
	list := Form{JSONSchema: []byte(`{"const": [1, 2]}`)}
	tag := Tag{Begin: "<", Content: list, End: []string{">"}}
	for want, form := range map[string]Form{
		"[1, 2]": list, "<[1, 2]>": {Tag: &tag}, "1[1, 2]": {Sequence: []Form{{Text: "1"}, list}},
		"<[1, 2]>2": {AnyOf: []Form{{Sequence: []Form{{Tag: &tag}, {Text: "2"}}}}},
		"<[1, 2]>1": {Tags: &Tags{Triggers: []string{"<"}, Tags: []Tag{tag}}},
		"<1>[1, 2],": {Parameters: &Parameters{[]byte(`{"properties": {"1": {"const": [1, 2]}}, "required": ["1"]}`),
			ParameterTags{Begin: "<", Between: ">", NameEnd: ">", End: ","}}},
		"<[1, 2]>,<[1, 2]>": {Separated: &Separated{Tags: []Tag{tag}, Separator: ","}},
	} {
		compact, loose := compiled(t, v, form.Compacted()), strings.ReplaceAll(want, ", 2", ",2")
		require.True(t, accepts(compact, want), want)
		require.False(t, accepts(compact, loose), want)
		require.True(t, accepts(compiled(t, v, form), loose), want)
	}
}
