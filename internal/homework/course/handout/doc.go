// Package handout has the text of the homework handout, and a constant for each of its sentences that the product
// quotes.
//
// handout.txt is the handout as it was published on the web, without its pictures. The conversion of the page lost
// some spaces around program text, so a quote is compared with the text without regard to white space.
package handout
