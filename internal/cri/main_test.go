package cri

import (
	"os"
	"testing"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

func TestMain(m *testing.M) { os.Exit(namespaces.Main(m, stack.close)) }
