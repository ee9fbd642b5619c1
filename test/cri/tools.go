//go:build tools

package cri

// critest consists of a test file; this keeps what that needs in go.mod.
import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
