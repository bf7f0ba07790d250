// Package rules checks the text of a submission for what the handout requires (MUST) or
// forbids, and for nothing else: the other stages check what a submission
// does. A rule that does not understand some code reports nothing.
//
// A rule costs points only if breaking it contradicts a sentence of the handout whatever the
// program does. If a program that breaks it may still be right, it is advice.
//
// The text is parsed in a separate process (Serve), because it can be written so that
// it exhausts the memory and stack of the parser.
package rules
