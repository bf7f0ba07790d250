// Package pooling makes vectors and scores from the hidden states of a prompt. A Pool makes a vector from the states as
// steps compute them. Embedding cuts and normalizes a vector. A Classifier makes a score from it. The package does not
// know requests or models.
package pooling
