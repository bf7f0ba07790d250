package sched

import (
	"testing"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/rapidtest"
)

func init() { level.CollectLess() }

func TestMain(m *testing.M) { rapidtest.Main(m) }
