// Package student makes the folder that staff hand out: the traces that everybody may
// see, as text and as C programs that check themselves, and how to use them. Nothing
// of the hidden traces is in it.
package student
