package model

import (
	"math"

	"llmmemory/internal/serving/model/matrix"
)

// comparedPanels is the number of panels whose logits are compared while they are in the second-level cache.
const comparedPanels = 16

// largest finds the largest logit of each row during the product with the head.
type largest struct {
	tasks  []logit // the largest of each task and row
	tokens []int32 // the result for each row
}

type logit struct {
	value float32
	token int32
}

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

// compare compares logits of a row, the first of which is that of token.
func (l *largest) compare(task, row int, logits []float32, token int) {
	i, value := matrix.ArgMax(logits)
	l.tasks[task*len(l.tokens)+row].take(logit{value, int32(token + i)})
}

// take keeps the larger logit, or the first of equal ones. A NaN is larger than any number.
func (l *logit) take(other logit) {
	if other.value > l.value || l.token < 0 && other.value == l.value || other.value != other.value {
		*l = other
	}
}

// merge combines the tasks, in the order of tokens. A row whose largest logit is not finite gets token -1.
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
