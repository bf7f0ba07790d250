// Package handout is the text of the homework handout and the sentences of it
// that the product quotes, each under one name. A grade report, a rule and a
// comment that need the same sentence name the same constant.
//
// handout.txt is the handout as it was published on the web, without its
// pictures. Converting the page lost some spaces around program text, so white
// space is ignored when a quote is compared with it.
//
// Other packages decide what a rule means and when it is broken.
package handout
