package pooling

import "math"

// Embedding returns the first dimensions elements of a vector, or all if dimensions is 0. If normalize is true, it
// divides them by their Euclidean length, unless that is 0 (torch's normalize with p = 2).
func Embedding(vector []float32, dimensions int, normalize bool) []float32 {
	if dimensions > 0 {
		vector = vector[:dimensions]
	}
	if !normalize {
		return vector
	}
	squares := 0.0
	for _, v := range vector {
		squares += float64(v) * float64(v)
	}
	if squares == 0 {
		return vector
	}
	length, unit := math.Sqrt(squares), make([]float32, len(vector))
	for i, v := range vector {
		unit[i] = float32(float64(v) / length)
	}
	return unit
}

// A Classifier has a row of weights for each label, and scores the first label. It is the last matrix of a reranker.
type Classifier [][]float32

// Score returns the probability of the first label. With one label, it is the sigmoid of the label's logit; with
// several, their softmax. A score is from 0 to 1, or NaN if a logit is NaN.
func (c Classifier) Score(vector []float32) float64 {
	logits := make([]float64, len(c))
	for i, row := range c {
		for k, w := range row {
			logits[i] += float64(w) * float64(vector[k])
		}
	}
	others := 0.0 // the sum of exp(logit - the first logit) of the other labels
	if len(c) == 1 {
		others = math.Exp(-logits[0])
	}
	for _, l := range logits[1:] {
		others += math.Exp(l - logits[0])
	}
	return 1 / (1 + others)
}
