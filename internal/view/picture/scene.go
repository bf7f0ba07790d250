package picture

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
	"llmmemory/internal/vllm/v1/pool"
	"llmmemory/internal/vllm/v1/sched"
)

const (
	blockSize = 4
	blocks    = 14 // with the null block
)

// A scene is a state to draw.
type scene struct {
	tables []table
	memory [blocks * blockSize]string // what the worker wrote, by slot
	counts [blocks]int32
	cached [blocks]bool
	queue  []int32
	copies []sched.Copy // of the last step
}

type table struct {
	title  string
	ids    []int32
	tokens int // computed
}

// A server runs requests whose tokens are words.
type server struct {
	s     *sched.Scheduler
	step  sched.Step
	out   sched.Outcome
	words []string // by token
	text  map[sched.ID][]int32
	scene scene
}

// play serves a question that ends, two with the same beginning that run, and a
// fork of one of them that has written since.
func play() (*scene, error) {
	s, err := sched.New(sched.Config{MaxNumSeqs: 8, MaxNumBatchedTokens: 64, Cache: kvcache.Config{
		NumGPUBlocks: blocks, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: blockSize}},
		EnablePrefixCaching: true, Hash: blockhash.CBOR("0"), MaxModelLen: 32,
	}})
	if err != nil {
		return nil, err
	}
	v := &server{s: s, text: map[sched.ID][]int32{}}
	cats, err := v.ask("Tell me a joke about cats please", 1)
	if err != nil {
		return nil, err
	}
	if err := v.run(map[sched.ID]string{cats: "Once"}); err != nil {
		return nil, err
	}
	const system = "You are a kind helper . Be brief "
	a, err := v.ask(system+"Name a", 8)
	if err != nil {
		return nil, err
	}
	b, err := v.ask(system+"Why ?", 8)
	if err != nil {
		return nil, err
	}
	if err := v.run(map[sched.ID]string{a: "The", b: "Well"}); err != nil {
		return nil, err
	}
	child, err := v.s.Fork(a, sched.Child{Last: v.token("A"), Arrival: 1})
	if err != nil {
		return nil, err
	}
	v.text[child] = slices.Clone(v.text[a])
	v.text[child][len(v.text[child])-1] = v.token("A")
	if err := v.run(map[sched.ID]string{a: "Nile", b: "because", child: "long"}); err != nil {
		return nil, err
	}
	for _, r := range []struct {
		title string
		id    sched.ID
	}{{"request A", a}, {"fork of A", child}, {"request B", b}} {
		ids, err := v.s.Table(nil, r.id, 0)
		if err != nil {
			return nil, err
		}
		computed, _, err := v.s.NumComputedTokens(r.id)
		if err != nil {
			return nil, err
		}
		v.scene.tables = append(v.scene.tables, table{r.title, ids, computed})
	}
	v.s.Inspect(func(c *kvcache.Cache) { v.scene.look(c.Pool()) })
	return &v.scene, nil
}

// look notes what the pool says of each block.
func (s *scene) look(p *pool.Pool) {
	for id := range int32(blocks) {
		s.counts[id] = p.Count(id)
		_, _, s.cached[id] = p.Primary(id)
	}
	s.queue = slices.Collect(p.Queue())
}

func (v *server) token(word string) int32 {
	if i := slices.Index(v.words, word); i >= 0 {
		return int32(i)
	}
	v.words = append(v.words, word)
	return int32(len(v.words) - 1)
}

// ask adds a request.
func (v *server) ask(prompt string, most int) (sched.ID, error) {
	var tokens []int32
	for word := range strings.FieldsSeq(prompt) {
		tokens = append(tokens, v.token(word))
	}
	id, err := v.s.Add(sched.Spec{Tokens: tokens, MaxTokens: most})
	if err != nil {
		return 0, err
	}
	v.text[id] = tokens
	return id, nil
}

// run schedules a step, writes where it says, and samples the answers. A request
// without one says nothing.
func (v *server) run(answers map[sched.ID]string) error {
	if err := v.s.Schedule(&v.step); err != nil {
		return err
	}
	m := &v.scene.memory
	v.scene.copies = append(v.scene.copies[:0], v.step.Copies...)
	for _, c := range v.step.Copies {
		copy(m[c.Dst*blockSize:][:blockSize], m[c.Src*blockSize:])
	}
	var counts, sampled []int32
	slots := v.step.Slots[0]
	for _, row := range v.step.Rows {
		for k := range row.NumScheduledTokens {
			m[slots[k]] = v.words[v.text[row.ID][row.NumComputedTokens+k]]
		}
		slots = slots[row.NumScheduledTokens:]
		word, ok := answers[row.ID]
		if !ok {
			counts = append(counts, 0)
			continue
		}
		counts = append(counts, 1)
		sampled = append(sampled, v.token(word))
		v.text[row.ID] = append(v.text[row.ID], v.token(word))
	}
	if len(sampled) != len(answers) {
		return fmt.Errorf("%d answers, %d rows can be answered", len(answers), len(sampled))
	}
	return v.s.Update(counts, sampled, &v.out)
}
