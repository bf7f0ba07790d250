package sched

import (
	"testing"

	_ "llmmemory/internal/testkit/gcpercent"
	"llmmemory/internal/testkit/rapidtest"
)

func TestMain(m *testing.M) { rapidtest.Main(m) }
