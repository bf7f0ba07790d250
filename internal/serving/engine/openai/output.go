package openai

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/toolparser"
)

// An output follows the answers of a job.
type output struct {
	job      *job
	parts    []part // the last part of each answer
	parsers  []*toolparser.Parser
	calls    []int            // of each answer so far
	prefixes [][]engine.Token // Event.Prompt of each prompt
	made     int              // tokens of all answers
}

func (j *job) output() *output {
	n := len(j.prompts) * j.bestOf
	return &output{job: j, parts: make([]part, n), parsers: make([]*toolparser.Parser, n), calls: make([]int, n),
		prefixes: make([][]engine.Token, len(j.prompts))}
}

// finishCalls is the finish reason of an answer with calls, unless max_tokens or the context ended the answer, or a stop
// string or a token of stop_token_ids inside a call.
const finishCalls engine.Finish = "tool_calls"

// next returns the part that event e adds to an answer. The answer belongs to the prompt with the index promptIndex.
// The part is valid until next returns another part of the same answer.
func (o *output) next(promptIndex int, e engine.Event) (*part, error) {
	if e.Err != nil {
		return nil, e.Err
	}
	j := o.job
	e = j.trim(e)
	k := promptIndex*j.bestOf + e.Index
	p := &o.parts[k]
	if e.Prompt != nil {
		o.prefixes[promptIndex] = e.Prompt
	}
	*p = part{
		index: promptIndex*j.bestOf + e.Index, prompt: j.prompts[promptIndex], first: p.consumed == 0, position: p.position,
		text: e.Text, tokens: e.Tokens, finish: e.Finish, stopReason: e.StopReason, consumed: p.consumed + len(e.Tokens),
		reasoning: p.reasoning, thinking: p.thinking,
	}
	if p.first {
		p.prefix, p.position = o.prefixes[promptIndex], new(textPosition)
	}
	o.made += len(e.Tokens)
	if j.parser != nil {
		if o.parsers[k] == nil {
			o.parsers[k] = j.parser(&p.prompt)
		}
		p.events = o.parse(k, e)
		if p.thinking {
			p.reasoning += len(e.Tokens)
		}
		if o.calls[k] > 0 && p.finish == engine.FinishStop && (e.StopReason == nil || !o.parsers[k].CallIsCut()) {
			p.finish = finishCalls
		}
	}
	return p, nil
}

// usage returns the usage so far.
func (o *output) usage() *usage {
	reasoning := 0
	for i := range o.parts {
		reasoning += o.parts[i].reasoning
	}
	return o.job.usage(o.made, reasoning)
}

// parse returns the events of a new part of answer k. It leaves out the reasoning if the client does not want
// it, and all calls but the first if the client wants only one.
func (o *output) parse(k int, e engine.Event) (events []toolparser.Event) {
	keep := func(all []toolparser.Event) {
		for _, one := range all {
			o.parts[k].thinking = one.Kind == toolparser.Reasoning
			if one.Kind == toolparser.Call {
				o.calls[k]++
			}
			switch one.Kind {
			case toolparser.Reasoning:
				if o.job.omitReasoning {
					continue
				}
			case toolparser.Content:
			default:
				if o.job.oneCall && o.calls[k] > 1 {
					continue
				}
			}
			events = append(events, one)
		}
	}
	keep(o.parsers[k].Feed(e.Text))
	cut := e.Finish == engine.FinishLength
	switch reason := e.StopReason.(type) {
	case string:
		cut = true
	case int32: // a special token is how models end calls
		cut = o.job.special == nil || !o.job.special(reason)
	}
	switch {
	case e.Finish == "":
	case cut:
		keep(o.parsers[k].Cut())
	default:
		keep(o.parsers[k].Close())
	}
	return events
}

// A spoken is the joined text of an answer in a chat: its reasoning, its content and its calls.
type spoken struct {
	reasoning, content string
	calls              []call
}

type call struct{ id, name, arguments string }

// spoken joins the events of an answer.
func (p *part) spoken() (all spoken) {
	var reasoning, content, arguments strings.Builder
	for _, e := range p.events {
		switch e.Kind {
		case toolparser.Reasoning:
			reasoning.WriteString(e.Text)
		case toolparser.Content:
			content.WriteString(e.Text)
		case toolparser.Call:
			arguments.Reset()
			all.calls = append(all.calls, call{id: e.ID, name: e.Name})
		case toolparser.Arguments:
			arguments.WriteString(e.Text)
		case toolparser.CallEnd:
			all.calls[len(all.calls)-1].arguments = arguments.String()
		}
	}
	all.reasoning, all.content = reasoning.String(), content.String()
	return all
}

// trim removes the answer from an event with promptOnly.
func (j *job) trim(e engine.Event) engine.Event {
	if j.promptOnly && e.Err == nil {
		e.Text, e.Tokens, e.Finish, e.StopReason = "", nil, engine.FinishLength, nil
	}
	return e
}

// answers waits for all answers of a job. It returns them with their usage, and adds the usage to the request's Record.
func (s *Server) answers(w http.ResponseWriter, r *http.Request, j *job) ([]part, *usage, error) {
	o := j.output()
	whole := make([]part, len(o.parts))
	texts := make([]strings.Builder, len(whole))
	for n := range j.merge(r.Context()) {
		for _, e := range n.events {
			p, err := o.next(n.prompt, e)
			if err != nil {
				return nil, nil, err
			}
			dst := &whole[p.index]
			texts[p.index].WriteString(p.text)
			tokens, events := append(dst.tokens, p.tokens...), append(dst.events, p.events...)
			*dst = *p
			dst.tokens, dst.events = tokens, events
		}
	}
	u := o.usage()
	recordUsage(w, u)
	if r.Context().Err() != nil {
		return nil, nil, errGone
	}
	var answers []part
	for i := range j.prompts {
		group := whole[i*j.bestOf:][:j.bestOf]
		var logs promptLogprobs
		if j.answer != nil {
			logs = j.answer.promptLogprobs(o.prefixes[i])
		}
		for k := range group {
			p := &group[k]
			p.first, p.prefix, p.text, p.position = true, o.prefixes[i], texts[i*j.bestOf+k].String(), new(textPosition)
			p.promptLogprobs = logs
		}
		if j.n < j.bestOf {
			group = best(group, j.n)
		}
		for k := range group {
			group[k].index = i*j.n + k
		}
		answers = append(answers, group...)
	}
	return answers, u, nil
}

// promptEvents are events of the stream of a prompt.
type promptEvents struct {
	prompt int
	events []engine.Event
}

// merge returns a channel with the events of all streams of a job. The channel is closed when all answers have ended or
// ctx is done.
func (j *job) merge(ctx context.Context) <-chan promptEvents {
	out := make(chan promptEvents)
	var wait sync.WaitGroup
	for i, stream := range j.streams {
		wait.Go(func() {
			for {
				events, err := stream.Next(ctx)
				if err != nil || events == nil {
					return
				}
				events = slices.Clone(events) // they are valid until the next call of Next
				for k := range events {
					events[k].Tokens = slices.Clone(events[k].Tokens)
				}
				select {
				case out <- promptEvents{i, events}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		wait.Wait()
		close(out)
	}()
	return out
}
