package volume

import (
	"context"
	"fmt"
)

// steps is called before each step that changes disk or mounts, and its error is that of the
// step. It is for tests, which fail a step or end the agent there; otherwise it is nil.
type steps func(step string) error

func (s steps) step(format string, args ...any) error {
	if s == nil {
		return nil
	}
	return s(fmt.Sprintf(format, args...))
}

type stepsKey struct{}

// withSteps hands the steps to plugins that have no [Sources].
func withSteps(ctx context.Context, s steps) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, stepsKey{}, s)
}

func stepsOf(ctx context.Context) steps {
	s, _ := ctx.Value(stepsKey{}).(steps)
	return s
}
