package tokenizer

import "github.com/dlclark/regexp2"

// GPT-2 writes each byte as a character that can be seen: those of Latin-1 that
// can, as themselves, and the others, in order, from U+0100 on.
var byteOf = func() map[rune]byte {
	m, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		m[r] = byte(b)
	}
	return m
}()

// unmap returns the bytes that GPT-2's characters stand for; ok is false if one
// stands for none.
func unmap(piece string) (b []byte, ok bool) {
	for _, r := range piece {
		v, known := byteOf[r]
		if !known {
			return nil, false
		}
		b = append(b, v)
	}
	return b, true
}

// The patterns by which models cut text into words, as their tokenizer.json has
// them; GGUF names them.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// patternsDefault are llama.cpp's for a vocabulary that does not name its pattern: each one cuts the words of the one
// before.
var patternsDefault = []string{`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}

// usePattern sets the pattern that cuts text into words.
func (t *Tokenizer) usePattern(pattern string) error {
	p, err := regexp2.Compile(pattern, regexp2.Unicode)
	if err != nil {
		return err
	}
	t.patterns = append(t.patterns, p)
	return nil
}
