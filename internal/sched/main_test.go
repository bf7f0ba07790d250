package sched

import (
	"testing"

	"llmmemory/internal/rapidtest"
)

func TestMain(m *testing.M) { rapidtest.Main(m) }
