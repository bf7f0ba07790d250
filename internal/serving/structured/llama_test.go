package structured

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// largeVocabulary returns a vocabulary of 128,000 tokens, as many as Llama 3 has without its special ones, and one end
// token. It has all bytes, numbers of up to three digits, runs of white space, punctuation with quotes, and words with
// and without a leading space. The last 28,000 tokens are words in other scripts. The generator is deterministic.
var largeVocabulary = sync.OnceValue(func() *Vocabulary {
	const size = 128_000
	known := map[string]bool{}
	var tokens [][]byte
	add := func(token string) {
		if token != "" && !known[token] && len(tokens) < size {
			known[token] = true
			tokens = append(tokens, []byte(token))
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for n := range 1000 {
		add(fmt.Sprint(n))
		add(fmt.Sprintf("%02d", n%100))
		add(fmt.Sprintf("%03d", n))
	}
	for n := 1; n <= 128; n++ {
		add(strings.Repeat(" ", n))
		if n < 32 {
			add(strings.Repeat("\n", n))
			add(strings.Repeat("\t", n))
			add("\n" + strings.Repeat(" ", n))
			add("\n" + strings.Repeat("\t", n))
		}
		if n <= 64 {
			add(strings.Repeat("-", n))
			add(strings.Repeat("=", n))
		}
	}
	random := rand.New(rand.NewPCG(3, 128))
	marks := []string{`"`, `'`, `,`, `:`, `{`, `}`, `[`, `]`, `(`, `)`, `.`, `;`, `/`, `\`, `-`, `=`, `<`, `>`, `_`, `!`, `?`, `#`, `@`, `*`, "\n", " ", `":`, `",`, `"}`}
	for len(tokens) < 9000 {
		var token strings.Builder
		for range 1 + random.IntN(4) {
			token.WriteString(marks[random.IntN(len(marks))])
		}
		add(token.String())
	}
	word := words(random)
	for len(tokens) < 100_000 {
		w := word()
		switch random.IntN(12) {
		case 0, 1, 2, 3, 4, 5:
			w = " " + w
		case 6, 7:
			w = strings.ToUpper(w[:1]) + w[1:]
		case 8:
			w = " " + strings.ToUpper(w[:1]) + w[1:]
		case 9:
			w = marks[random.IntN(len(marks))] + w
		}
		add(w)
	}
	scripts := []rune{0xE0, 0x410, 0x5D0, 0x627, 0x905, 0xE01, 0x3042, 0x4E00, 0xAC00}
	for len(tokens) < size {
		base := scripts[random.IntN(len(scripts))]
		var token strings.Builder
		if random.IntN(2) == 0 {
			token.WriteByte(' ')
		}
		for range 1 + random.IntN(5) {
			token.WriteRune(base + rune(random.IntN(50)))
		}
		text := token.String()
		if random.IntN(50) == 0 {
			text = text[:len(text)-1]
		}
		add(text)
	}
	v, err := NewVocabulary(append(tokens, nil), nil, []int{size})
	if err != nil {
		panic(err)
	}
	return v
})

// words returns a generator of words. It first returns words that are frequent in JSON and English, then
// random ones.
func words(random *rand.Rand) func() string {
	common := strings.Fields(`the of and to in is that for name type value id description string number object array true false
		null item list address city state country email phone date time user first last title status code message data version
		url http https www com org example test key count total price amount size color image file path default required`)
	syllables := strings.Fields(`a e i o u an er in on at or es en al it is ar le re te co de di ti ri ra ro ta to ma me mi mo na ne no
		pa pe po sa se si so la li lo ca ce ci con tion ment ing able pre pro per com ist ous ic ed ly st tr th sh ch ph`)
	next := 0
	return func() string {
		if next++; next <= 4*len(common) {
			return common[next%len(common)]
		}
		var w strings.Builder
		for range 1 + random.IntN(3) + random.IntN(2) {
			w.WriteString(syllables[random.IntN(len(syllables))])
		}
		return w.String()
	}
}

// tokenize divides a text into tokens. It takes the longest token that fits each time.
func (v *Vocabulary) tokenize(text []byte) []int {
	var out []int
	nodes := v.trie.nodes
	for len(text) > 0 {
		best, length := -1, 0
		node := int32(0)
		for depth := range text {
			found := int32(-1)
			for child := node + 1; child < nodes[node].end; child = nodes[child].end {
				if nodes[child].b == text[depth] {
					found = child
					break
				}
			}
			if found < 0 {
				break
			}
			node = found
			if nodes[node].count > 0 {
				best, length = int(v.trie.tokensAt(&nodes[node])[0]), depth+1
			}
		}
		out = append(out, best)
		text = text[length:]
	}
	return slices.Clip(out)
}
