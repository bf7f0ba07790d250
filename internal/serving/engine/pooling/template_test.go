package pooling_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/marks"
)

// Ensure that templates of rerankers make the prompt that the model was trained on, to the last line break.
func TestTemplates(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"with names in braces", "Q {query}\nD {document}\n\n", "Q what?\nD {query}\n\n"},
		{"in Jinja", `{{ (messages | selectattr("role", "eq", "document") | map(attribute="content") | first) }} {{ messages[0].content }}`,
			"{query} what?"},
		{"of Qwen3-Reranker", pooling.Qwen3Reranker, "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query " +
			"and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web " +
			"search query, retrieve relevant passages that answer the query\n<Query>: what?\n<Document>: {query}<|im_end|>\n" +
			"<|im_start|>assistant\n<think>\n\n</think>\n\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			template, err := chat.New(pooling.Template(test.source), nil)
			require.NoError(t, err)
			got := ""
			_, err = template.RenderTo(t.Context(), func(piece string, _ *marks.Marks) error { got += piece; return nil },
				[]chat.Message{{Role: "query", Content: "what?"}, {Role: "document", Content: "{query}"}}, chat.Options{})
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
