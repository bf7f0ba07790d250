// Package gbnf compiles the text of a grammar in llama.cpp's GBNF, or in vLLM's nearly equal EBNF.
//
// A rule has the form name ::= alternatives. An alternative can contain literals in quotes, classes of characters in
// brackets, a dot for any character, names of rules, and groups in parentheses. Each of them can be followed by *, +,
// ?, {n}, {n,}, {,m} or {n,m}. A comment begins with #. The rule root derives the answer. Rules may be recursive in any
// way.
//
// A part without recursion becomes one lexeme, unless it is too large. The tokens that may follow in a state of a
// lexeme are cached for all answers.
package gbnf
