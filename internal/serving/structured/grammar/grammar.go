package grammar

import (
	"slices"

	"llmmemory/internal/serving/structured/lexeme"
)

// Node is a node of a rule. The first node of a rule identifies the rule.
type Node int32

// Terminal is a lexeme that an edge reads.
type Terminal struct {
	make   func(alive func(tag int32) bool) *lexeme.Lexeme // of a lazy terminal
	lexeme *lexeme.Lexeme                                  // nil until a lazy terminal has made it
}

// Grammar is a graph of nodes. Texts begin at node 0.
type Grammar struct {
	nodes []node
	edges []edge
}

type node struct {
	final bool
	edges []int32
}

type edge struct {
	terminal *Terminal
	call     Node   // if there is no terminal: the rule, or noCall
	targets  []Node // by the tag of the terminal's lexeme; otherwise one node
}

const noCall = -1

// New returns a grammar with node 0.
func New() *Grammar {
	g := &Grammar{}
	g.Node()
	return g
}

// Node adds a node.
func (g *Grammar) Node() Node {
	g.nodes = append(g.nodes, node{})
	return Node(len(g.nodes) - 1)
}

// NodeBytes is about what a node or an edge takes.
const NodeBytes = 64

// Size returns the number of nodes and edges.
func (g *Grammar) Size() int { return len(g.nodes) + len(g.edges) }

// Final lets a rule end at a node.
func (g *Grammar) Final(n Node) { g.nodes[n].final = true }

func (g *Grammar) add(source Node, e edge) {
	g.nodes[source].edges = append(g.nodes[source].edges, int32(len(g.edges)))
	g.edges = append(g.edges, e)
}

// Read adds an edge that reads a terminal. If the terminal's lexeme ends with tag i, the edge leads to
// targets[i].
func (g *Grammar) Read(source Node, t *Terminal, targets ...Node) {
	g.add(source, edge{terminal: t, targets: targets})
}

// Call adds an edge that calls a rule.
func (g *Grammar) Call(source, rule, target Node) {
	g.add(source, edge{call: rule, targets: []Node{target}})
}

// Jump adds an edge that reads nothing.
func (g *Grammar) Jump(source, target Node) {
	g.add(source, edge{call: noCall, targets: []Node{target}})
}

// Embed adds the nodes and edges of the grammar other. It returns the rule that derives the texts of other. The
// caller must not use other afterwards.
func (g *Grammar) Embed(other *Grammar) Node {
	rule, edges := Node(len(g.nodes)), int32(len(g.edges))
	for _, n := range other.nodes {
		for i := range n.edges {
			n.edges[i] += edges
		}
		g.nodes = append(g.nodes, n)
	}
	for _, e := range other.edges {
		if e.terminal == nil && e.call != noCall {
			e.call += rule
		}
		e.targets = slices.Clone(e.targets) // edges may share it
		for i := range e.targets {
			e.targets[i] += rule
		}
		g.edges = append(g.edges, e)
	}
	return rule
}

// NewTerminal returns the terminal of a lexeme.
func NewTerminal(l *lexeme.Lexeme) *Terminal { return &Terminal{lexeme: l} }

// LazyTerminal returns a terminal whose lexeme does not exist yet. When the lexeme is first needed, the terminal calls
// make. The argument of make is a function, which Trim provides: alive(tag) reports whether the rule can still end
// after the lexeme has ended with this tag. The lexeme that make returns should have only tags for which alive returns
// true; there is at least one.
//
// If the lexeme has several tags, only one edge may read the terminal. For each tag, alive looks at the node to which
// the edge leads. A second edge could lead to other nodes, but the terminal has only one lexeme for both edges.
func LazyTerminal(make func(alive func(tag int32) bool) *lexeme.Lexeme) *Terminal {
	return &Terminal{make: make}
}

// Trim removes two kinds of edges that no text can use: an edge that calls a rule that cannot end, and an edge after
// which the rule that contains the edge cannot end. Trim reports whether the grammar derives any text.
func (g *Grammar) Trim() bool {
	users := make([][]int32, len(g.nodes)) // the edges that need each node
	sources := make([]Node, len(g.edges))
	for n, node := range g.nodes {
		for _, e := range node.edges {
			sources[e] = Node(n)
			for _, target := range g.edges[e].targets {
				users[target] = append(users[target], e)
			}
			if g.edges[e].terminal == nil && g.edges[e].call != noCall {
				users[g.edges[e].call] = append(users[g.edges[e].call], e)
			}
		}
	}
	alive := make([]bool, len(g.nodes))
	var work []Node
	mark := func(n Node) {
		if !alive[n] {
			alive[n] = true
			work = append(work, n)
		}
	}
	for n, node := range g.nodes {
		if node.final {
			mark(Node(n))
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		for _, e := range users[n] {
			if !alive[sources[e]] && g.usable(e, alive) { // so the targets of an edge are walked once
				mark(sources[e])
			}
		}
	}
	for n := range g.nodes {
		kept := g.nodes[n].edges[:0]
		for _, e := range g.nodes[n].edges {
			if g.usable(e, alive) {
				kept = append(kept, e)
				g.drop(e, alive)
			}
		}
		g.nodes[n].edges = kept
	}
	return alive[0]
}

func (g *Grammar) usable(e int32, alive []bool) bool {
	edge := &g.edges[e]
	if edge.terminal == nil && edge.call != noCall && !alive[edge.call] {
		return false
	}
	for _, target := range edge.targets {
		if alive[target] {
			return true
		}
	}
	return false
}

// drop changes the terminal of edge e, if the terminal's lexeme does not exist yet. The lexeme will then have only tags
// for which the edge leads to an alive node. A node is alive if the rule can end there or later.
func (g *Grammar) drop(e int32, alive []bool) {
	edge := &g.edges[e]
	if edge.terminal == nil || edge.terminal.make == nil {
		return
	}
	make := edge.terminal.make
	edge.terminal.make = func(func(int32) bool) *lexeme.Lexeme {
		return make(func(tag int32) bool { return alive[edge.targets[tag]] })
	}
}

func (t *Terminal) get() *lexeme.Lexeme {
	if t.lexeme == nil {
		t.lexeme = t.make(nil)
	}
	return t.lexeme
}
