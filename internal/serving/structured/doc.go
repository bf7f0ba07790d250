// Package structured determines the tokens that may come next in an answer with a required form. The form is a JSON
// Schema, a regular expression, a list of choices, a grammar, any JSON object, or a combination of these with free
// text.
//
// A program calls [NewVocabulary] once for each model and [Compile] once for each form. Each sequence has a [Matcher].
// Its mask is exact: a token is allowed if and only if the text with this token is still the beginning of an answer of
// this form.
//
// The packages jsonschema, gbnf and regex translate a form into a grammar; structuraltag.go reads structural tags as
// forms, and compose.go combines forms. The packages grammar, lexeme and automaton run the grammar over bytes. This
// package connects bytes with tokens. The vocabulary is stored as a trie in vocabulary.go. The tokens for a state of a
// lexeme are computed in tokens.go and cached in constraint.go. A sequence is followed in matcher.go. Sampling,
// templates and HTTP are not part of this package.
package structured
