// Package structured says which tokens may come next so that an answer has a given form: that of a JSON Schema, a regular
// expression, one of some choices, a grammar, or any JSON object.
//
// [NewVocabulary] is called once a model, [Compile] once a form. Each sequence has a [Matcher]: its Mask is exact. A
// token is allowed if and only if its bytes, after those so far, begin an answer of the form.
//
// How a form becomes a grammar is decided in the packages jsonschema, gbnf and regex, how the grammar runs over bytes in
// grammar, lexeme and automaton. Here bytes become tokens: vocabulary.go has the vocabulary as a trie, fit.go the tokens
// that fit a state of a lexeme, which are kept, matcher.go a sequence. Sampling, templates and HTTP do not live here.
package structured
