// Package student makes the folder that staff hand out: the visible traces, as text
// and as C programs that check themselves, with instructions. Nothing
// of the hidden traces is in it.
package student
