// Package handout has the text of the homework handout, and a constant for each
// sentence of it that the product quotes.
//
// handout.txt is the handout as it was published on the web, without its
// pictures. Converting the page lost some spaces around program text, so white
// space is ignored when a quote is compared with it.
package handout
