package cri

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/berth-run/berth/internal/testutil/namespaces"
)

func TestMain(m *testing.M) {
	os.Exit(namespaces.Main(m, func(ctx context.Context) error { return errors.Join(stack.close(ctx), programStack.close(ctx)) }))
}
