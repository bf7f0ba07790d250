package engine

// MaxLogits is how many rows of logits are held at a time.
const MaxLogits = maxLogits
