package pooling

import "strings"

// Qwen3Reranker is the template of Qwen3-Reranker for a query and a document, with the instruction of its model card.
const Qwen3Reranker = `<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: Given a web search query, retrieve relevant passages that answer the query
<Query>: {query}
<Document>: {document}<|im_end|>
<|im_start|>assistant
<think>

</think>

`

// Template returns a chat template in Jinja for a message of the role query and one of the role document. The parameter
// source is such a template, or a text with {query} and {document}, as tokenizer.chat_template.rerank of GGUF files.
func Template(source string) string {
	if strings.Contains(source, "{{") || strings.Contains(source, "{%") {
		return source
	}
	if strings.HasSuffix(source, "\n") {
		source += "\n" // Jinja removes the last one
	}
	return strings.NewReplacer("{query}", "{{ messages[0].content }}", "{document}", "{{ messages[1].content }}").Replace(source)
}
