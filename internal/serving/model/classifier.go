package model

import (
	"slices"

	"llmmemory/internal/serving/model/weights"
)

// classifiers are the names of the last matrix of rerankers: in GGUF files, and in folders of a class
// ForSequenceClassification.
var classifiers = []string{"cls.output.weight", "score.weight"}

// Classifier returns the rows of the matrix with which a reranker scores a text, each of HiddenSize elements. It is the
// files' own matrix. If they have none, its rows are those of tokens in the output matrix (vLLM's
// classifier_from_token).
func Classifier(c *Config, files *weights.Tensors, gguf bool, tokens []int32) (rows [][]float32, err error) {
	l := &loader{config: c, files: files, used: map[string]bool{}, pooling: true}
	l.findNames(gguf)
	var t *weights.Tensor
	for _, name := range classifiers {
		if own := files.Get(name); own != nil {
			t, tokens = own, nil
			for i := range own.Rows {
				tokens = append(tokens, int32(i))
			}
		}
	}
	switch {
	case t != nil:
		l.expect(t, t.Rows, c.HiddenSize)
	case c.TieEmbeddings:
		t = l.matrix(l.names.embed, c.VocabSize, c.HiddenSize)
	default:
		t = l.matrix(l.names.head, c.VocabSize, c.HiddenSize)
	}
	if l.err != nil {
		return nil, l.err
	}
	if len(tokens) == 0 {
		return nil, refused("it has no matrix that scores texts, and no tokens for one are given")
	}
	for _, id := range tokens {
		if id < 0 || int(id) >= t.Rows {
			return nil, refused("the matrix %q has no row %d", t.Name, id)
		}
		row := make([]float32, c.HiddenSize)
		t.Row(int(id), row)
		rows = append(rows, row)
	}
	return rows, nil
}

// scores reports whether a tensor is the matrix that Classifier reads.
func (l *loader) scores(name string) bool { return l.pooling && slices.Contains(classifiers, name) }

// ForPooling is an Option for models whose hidden states are needed, and no answers. If a folder has no output matrix,
// the embeddings take its place. The files may have the matrix that Classifier reads.
func ForPooling(l *loader) { l.pooling = true }
