// Package grammar implements context-free grammars over lexemes, and runs them byte by byte.
//
// A grammar is a graph. An edge reads a lexeme, or calls the rule that begins at another node. A [Config] is the state
// after a text. It has an [Item] for each way to read the text: the lexeme that is being read, with the stack of calls
// of rules around it. Stacks share frames, as in a generalised LR parser, so that ambiguous and left-recursive grammars
// take polynomial time. Equal configs in the cache of a [Runner] are one object. A config caches the configs that
// follow it, one for each next byte. This package knows nothing about tokens.
package grammar
