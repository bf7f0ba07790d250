// Package structured determines which tokens may come next so that an answer has a required form: that
// of a JSON Schema, a regular expression, a list of choices, a grammar, any JSON object, or a combination
// of these with free text.
//
// A program calls [NewVocabulary] once for each model and [Compile] once for each form. Each sequence
// has a [Matcher]. Its mask is exact: a token is allowed if and only if its bytes, appended to the
// text so far, are the beginning of an answer that has the form.
//
// The packages jsonschema, gbnf and regex translate a form into a grammar; compose.go combines forms. The packages grammar,
// lexeme and automaton run the grammar over bytes. This package connects bytes with tokens:
// vocabulary.go stores the vocabulary as a trie, fit.go computes and caches the tokens that fit a
// state of a lexeme, and matcher.go follows a sequence. Sampling, templates and HTTP are not part of
// this package.
package structured
