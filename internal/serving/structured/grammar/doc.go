// Package grammar holds context-free grammars over lexemes, and runs them byte by byte.
//
// A grammar is a graph: an edge reads a lexeme, or calls the rule that begins at another node. A [Config] is all that
// a text so far can be: the lexemes under way, each with the stack of the calls around it. Stacks share their frames,
// as in a generalised LR parser, so that ambiguous and left-recursive grammars take polynomial time. Equal configs are
// one, and remember what follows them. What tokens are is not known here.
package grammar
