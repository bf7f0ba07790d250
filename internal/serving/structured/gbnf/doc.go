// Package gbnf makes grammars of their text: llama.cpp's GBNF, and the EBNF that vLLM takes, which is nearly the same.
//
// A rule is name ::= alternatives. An alternative has literals in quotes, classes of characters in brackets, a dot for any
// character, names of rules, groups in parentheses, and after each of them *, +, ?, {n}, {n,}, {,m} or {n,m}. A # begins a
// comment. The answer is what the rule root derives. Rules may be recursive in any way.
//
// Parts that need no stack become one lexeme, so that what fits them is kept for all answers.
package gbnf
