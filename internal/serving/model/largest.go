package model

import (
	"math"

	"llmmemory/internal/serving/model/matrix"
)

// comparedPanels is the number of panels of the head after which their logits are compared, while they are
// still in the second-level cache.
const comparedPanels = 16

// largest finds the largest logit of each row while the head is multiplied.
type largest struct {
	tasks  []logit // of each task and row
	tokens []int32 // of each row
}

type logit struct {
	value float32
	token int32
}

// reset grows the memory to the number of tasks and rows, of which nothing is known yet.
func (l *largest) reset(tasks, rows int) {
	if cap(l.tasks) < tasks*rows {
		l.tasks = make([]logit, tasks*rows)
	}
	l.tasks = l.tasks[:tasks*rows]
	for i := range l.tasks {
		l.tasks[i] = logit{float32(math.Inf(-1)), -1}
	}
	if cap(l.tokens) < rows {
		l.tokens = make([]int32, rows)
	}
	l.tokens = l.tokens[:rows]
}

// compare looks at some logits of a row, of which the first is that of token.
func (l *largest) compare(task, row int, logits []float32, token int) {
	i, value := matrix.ArgMax(logits)
	l.tasks[task*len(l.tokens)+row].take(logit{value, int32(token + i)})
}

// take keeps the larger one, of equal ones the first. A NaN stays.
func (l *logit) take(other logit) {
	if other.value > l.value || l.token < 0 && other.value == l.value || other.value != other.value {
		*l = other
	}
}

// merge goes through the tasks, which are in the order of the tokens. The token of a row whose largest logit is NaN or
// infinite is -1.
func (l *largest) merge() {
	rows := len(l.tokens)
	for row := range rows {
		best := logit{float32(math.Inf(-1)), -1}
		for i := row; i < len(l.tasks); i += rows {
			best.take(l.tasks[i])
		}
		l.tokens[row] = best.token
		if best.value-best.value != 0 {
			l.tokens[row] = -1
		}
	}
}
