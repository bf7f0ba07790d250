package chart

import (
	"os"
	"testing"

	"llmmemory/internal/testkit/browsertest"
	_ "llmmemory/internal/testkit/gcpercent"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }
