// Package rules reads the text of a submission for what the handout says MUST or
// forbids, and for nothing else: what a submission does is the other stages' to
// see. A rule that cannot make sense of some code is silent.
//
// What costs points contradicts a sentence of the handout whatever the program
// does. Where a program may be right all the same, a breach is advice.
//
// The text is read in a process of its own (Serve), because it can be made to
// exhaust memory and stack of who parses it.
package rules
