package cni

import "context"

type realStack struct{}

var stack realStack

func (*realStack) close(context.Context) error { return nil }
