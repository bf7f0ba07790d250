package blockhash

import "crypto/sha256"

// embedding is the SHA-256 of the embeddings of tokens [start, end), clipped to
// those the prompt has: generated tokens have none (vLLM,
// _gen_prompt_embeds_extra_hash_keys).
func (e *Extras) embedding(start, end int) []byte {
	n := len(e.Embeddings)
	sum := sha256.Sum256(e.Embeddings[min(start*e.Stride, n):min(end*e.Stride, n)])
	return sum[:]
}
